#pragma once

#include "io/decode/decode.hpp"

namespace millrace {

/// `probe` for JPEG files (libjpeg-turbo): baseline, progressive and arithmetic coding, 8 bits, 1, 3 or 4 components.
PictureInfo probe_jpeg(std::span<const std::uint8_t> bytes, const DecodeLimits& limits);

/// `decode` for JPEG files into `pixels` (info.pixel_bytes).
/// Stricter than libjpeg, which fills in missing data and still returns a picture:
/// - The file ends inside a scan, or scans are missing: `truncated`, with the share of complete rows.
///   If limits.accept_truncated allows that share, the picture is decoded with a warning.
///   Of a progressive picture, only the rows of the scan that completes it count.
///   Arithmetic coding does not show where the data end, so none of its rows count.
/// - The coded data are inconsistent: always `corrupt_data`.
/// - Only the end marker is missing: decoded, with a warning.
/// - Bytes follow the end marker: decoded.
void decode_jpeg(std::span<const std::uint8_t> bytes, const PictureInfo& info, const DecodeLimits& limits,
                 std::uint8_t* pixels, std::vector<std::string>& warnings);

}  // namespace millrace
