#pragma once

#include <cstdint>
#include <vector>

#include "io/regions/dicom_header.hpp"

namespace millrace {

/// Bytes of memory that reading a slice needs for each of its values, at most. GDCM makes copies.
inline constexpr std::int64_t dicom_working_bytes = 16;

/// Reads the stored values of a slice from an open file with `file_bytes` bytes into `to`: [row][column], each of
/// header.bytes bytes in little-endian order. Throws PictureError.
void read_dicom_pixels(int descriptor, std::int64_t file_bytes, const DicomHeader& header,
                       std::vector<std::uint8_t>& to);

}  // namespace millrace
