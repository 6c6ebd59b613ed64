#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/decode/decode.hpp"

/// Pictures for the tests of decoding, made here by libjpeg, libspng or by hand.
namespace millrace::test {

using File = std::vector<std::uint8_t>;

/// An RGB8 picture, rows packed.
struct Rgb {
  int width = 0, height = 0;
  std::vector<std::uint8_t> data;
  const std::uint8_t* at(int x, int y) const {
    return &data[(static_cast<std::size_t>(y) * static_cast<std::size_t>(width) + static_cast<std::size_t>(x)) * 3];
  }
  bool operator==(const Rgb&) const = default;
};

/// Smooth ramps with some texture: no symmetry, so a wrong orientation cannot pass.
Rgb ramp(int width, int height);

struct JpegOptions {
  int quality = 90;
  int components = 3;  ///< 1 grey, 3 YCbCr, 4 as colour_space says
  bool ycck = false;   ///< 4 components: YCCK instead of CMYK
  bool adobe = true;   ///< 4 components: inverted, with Adobe's marker
  bool progressive = false, arithmetic = false, subsampled = true;
  int restart_rows = 0;
  std::optional<File> exif{};  ///< TIFF block of an APP1 segment
};

/// A JPEG of `picture`; with 4 components C = R, M = G, Y = B, K = 200 as stored values.
File make_jpeg(const Rgb& picture, const JpegOptions& options = {});

/// The picture that libjpeg itself decodes from a valid file.
Rgb plain_libjpeg(const File& file);

/// A TIFF block with one tag.
File exif_block(std::uint32_t value, bool big_endian = false, std::uint32_t tag = 0x0112, std::uint32_t type = 3);

struct PngOptions {
  int colour_type = 2, bit_depth = 8;
  bool interlaced = false;
  std::vector<std::uint8_t> palette{};  ///< RGB triples
  std::vector<std::uint8_t> palette_alpha{};
  std::optional<std::uint16_t> grey_key{};             ///< tRNS of grey
  std::vector<std::pair<std::string, File>> chunks{};  ///< extra chunks before the data
};

/// A PNG from samples in the order of the file: one number for each sample.
File make_png(int width, int height, const std::vector<std::uint16_t>& samples, const PngOptions& options = {});
File make_png(const Rgb& picture, bool interlaced = false);

/// One PNG chunk with its checksum.
File png_chunk(const std::string& type, const File& payload);

/// The signature and IHDR of a PNG with that size, and nothing after them.
File png_header(std::uint32_t width, std::uint32_t height, int bit_depth = 8, int colour_type = 2,
                bool interlaced = false);

/// The bytes of a text.
inline File bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

/// operator+ appends `b`, cut() keeps the first `size` bytes.
File operator+(File a, const File& b);
File cut(const File& file, std::size_t size);
/// The position of the length field of the first JPEG marker with that code.
std::size_t find_marker(const File& file, std::uint8_t code);
/// Overwrites the size in a JPEG's frame header.
File with_jpeg_size(File file, int width, int height);

/// Decodes under `limits` into memory from new; throws PictureError.
Decoded decode_file(const File& file, const DecodeLimits& limits = {});
Rgb pixels_of(const Decoded& decoded);

/// The failure of probe or decode, or the decoded picture.
struct Outcome {
  std::optional<Reason> reason;
  std::string detail;
  std::optional<Decoded> decoded;
};
Outcome outcome_of(const File& file, const DecodeLimits& limits = {});

/// Mean of blocks of a display raster in double precision, rounded half up.
Rgb reference_reduce(const Rgb& picture, int reduction);

/// The raster of a file turned for display, by cv::flip and cv::rotate.
Rgb reference_orient(const Rgb& picture, int orientation);

/// Largest difference of a sample; sizes must agree.
int max_difference(const Rgb& a, const Rgb& b);

/// Resident memory in bytes: now, and its maximum since the start.
std::int64_t resident_bytes();
std::int64_t peak_resident_bytes();

}  // namespace millrace::test
