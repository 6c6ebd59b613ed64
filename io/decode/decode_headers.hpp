#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "io/decode/decode.hpp"
#include "io/decode/decode_raster.hpp"

namespace millrace {

/// The format of a file by its first bytes; nothing if it is none we know.
std::optional<PictureFormat> sniff(std::span<const std::uint8_t> bytes);

/// What bytes that are no picture look like, for a message: "HTML text", "a PDF document", "unknown binary data".
std::string describe_content(std::span<const std::uint8_t> bytes);

/// What must be known of a BMP, WebP, TIFF, PNM or JPEG 2000 file before another library sees it.
struct CodecHeader {
  FileSize size;
  int bytes_per_pixel = 4;        ///< of the decoded raster, before it becomes RGB8
  std::int64_t buffer_bytes = 0;  ///< what its codec takes besides, e.g. a TIFF tile
  std::uint64_t data_end = 0;     ///< what the file must have at least, as far as the header tells
  int orientation = 1;
  std::uint64_t orientation_offset = 0;  ///< TIFF: where the value stands; 0: nowhere
  bool big_endian = false;
  std::span<const std::uint8_t> first_frame;  ///< of an animated WebP: its chunks
  std::string warning;                        ///< e.g. that it has more pages
};

/// Reads that header; throws PictureError for what it cannot size or does not decode (unsupported_format), for a header
/// that is cut off or data that cannot all be there (truncated), and for nonsense (corrupt_data).
CodecHeader read_codec_header(std::span<const std::uint8_t> bytes, PictureFormat format);

}  // namespace millrace
