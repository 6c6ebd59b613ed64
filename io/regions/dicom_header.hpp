#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace millrace {

/// How a DICOM file stores its pixels.
enum class DicomCoding { raw, rle, jpeg, jpeg_ls, jpeg2000 };

/// The facts of a DICOM file with one grey picture, which is a slice of a volume.
struct DicomHeader {
  DicomCoding coding = DicomCoding::raw;
  std::string series{};                 ///< SeriesInstanceUID
  int rows = 0, columns = 0;            ///< at least 1
  int bytes = 0;                        ///< of a stored value: 1, 2 or 4
  int bits_stored = 0, high_bit = 0;    ///< the bits of a stored value that count
  bool is_signed = false;               ///< whether these bits are in two's complement
  double slope = 1, intercept = 0;      ///< from stored values to values
  std::array<double, 2> spacing{};      ///< between rows, and between columns, in mm
  double thickness = 0;                 ///< of the slice, in mm; 0: unknown
  std::array<double, 6> orientation{};  ///< of the patient: directions of rows and of columns, each of length 1
  std::array<double, 3> position{};     ///< of the patient: the centre of the first pixel, in mm
  std::int64_t pixels_begin = 0;        ///< place of the first byte in the file
  std::int64_t values() const { return std::int64_t{rows} * columns; }
};

/// Reads the header of an open file with `file_bytes` bytes. Takes a few kilobytes of memory, also for a hostile file.
/// Throws PictureError, also for a file that is no slice, and for raw pixels that are cut.
DicomHeader read_dicom_header(int descriptor, std::int64_t file_bytes);

}  // namespace millrace
