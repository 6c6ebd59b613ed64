#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "io/decode/decode.hpp"
#include "io/decode/decode_raster.hpp"

namespace millrace {

/// The format of a file by its first bytes; nothing if we do not know it.
std::optional<PictureFormat> sniff(std::span<const std::uint8_t> bytes);

/// For messages: what bytes that are no picture look like, e.g. "HTML text", "a PDF document", "unknown binary data".
std::string describe_content(std::span<const std::uint8_t> bytes);

/// What we must know of a BMP, WebP, TIFF, PNM or JPEG 2000 file before another library sees it.
struct CodecHeader {
  FileSize size;
  int bytes_per_pixel = 4;        ///< of the decoded raster, before it becomes RGB8
  std::int64_t buffer_bytes = 0;  ///< what its codec takes in addition, e.g. a TIFF tile
  std::uint64_t data_end = 0;     ///< minimum size of the file, as far as the header tells
  int orientation = 1;
  std::uint64_t orientation_offset = 0;  ///< TIFF: position of the value; 0: none
  bool big_endian = false;
  std::span<const std::uint8_t> first_frame;  ///< of an animated WebP: the chunks of that frame
  std::string warning;                        ///< e.g. that the file has more pages
};

/// Reads that header. Throws PictureError:
/// - unsupported_format for a picture that it cannot size or does not decode
/// - truncated for a header, table or codestream that is cut off
/// - corrupt_data for values that make no sense
/// It does not compare `data_end` with the size of the file.
CodecHeader read_codec_header(std::span<const std::uint8_t> bytes, PictureFormat format);

}  // namespace millrace
