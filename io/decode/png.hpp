#pragma once

#include "io/decode/decode.hpp"

namespace millrace {

/// `probe` for PNG files (libspng).
PictureInfo probe_png(std::span<const std::uint8_t> bytes, const DecodeLimits& limits);

/// `decode` for PNG files of every colour type and depth, row by row, into `pixels` (info.pixel_bytes).
/// Only the critical chunks and tRNS reach libspng, so a bomb in a text or profile chunk is never unpacked.
/// - A wrong checksum in one of these chunks: `corrupt_data`.
/// - The data end early: `truncated`, with the share of complete rows.
///   If limits.accept_truncated allows that share, the picture is decoded with a warning.
///   In an interlaced picture, the last pass completes the rows.
/// - Only the end chunk is missing: decoded, with a warning.
void decode_png(std::span<const std::uint8_t> bytes, const PictureInfo& info, const DecodeLimits& limits,
                std::uint8_t* pixels, std::vector<std::string>& warnings);

}  // namespace millrace
