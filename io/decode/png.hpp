#pragma once

#include "io/decode/decode.hpp"

namespace millrace {

/// `probe` for PNG files (libspng).
PictureInfo probe_png(std::span<const std::uint8_t> bytes, const DecodeLimits& limits);

/// `decode` for PNG files of every colour type and depth into `pixels` (info.pixel_bytes), row by row. libspng is shown
/// the critical chunks and tRNS only, so a bomb in a text or profile chunk is never inflated. A wrong checksum in them
/// is `corrupt_data`; data that end early are `truncated`, with the share of complete rows (of an interlaced picture
/// the last pass counts).
void decode_png(std::span<const std::uint8_t> bytes, const PictureInfo& info, const DecodeLimits& limits,
                std::uint8_t* pixels, std::vector<std::string>& warnings);

}  // namespace millrace
