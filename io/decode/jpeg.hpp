#pragma once

#include "io/decode/decode.hpp"

namespace millrace {

/// `probe` for JPEG files (libjpeg-turbo): baseline, progressive and arithmetic coding, 8 bits, 1, 3 or 4 components.
PictureInfo probe_jpeg(std::span<const std::uint8_t> bytes, const DecodeLimits& limits);

/// `decode` for JPEG files into `pixels` (info.pixel_bytes). Stricter than libjpeg, which fills what is missing and
/// calls it a picture:
/// - the file ends inside a scan, or scans are missing: `truncated`, with the share of complete rows (of a progressive
/// picture only
///   the rows of the scan that completes it count; arithmetic coding cannot tell, and counts none);
/// - the coded data are inconsistent: `corrupt_data`, always;
/// - only the end marker is missing, or bytes follow it: fine, the former with a warning.
void decode_jpeg(std::span<const std::uint8_t> bytes, const PictureInfo& info, const DecodeLimits& limits,
                 std::uint8_t* pixels, std::vector<std::string>& warnings);

}  // namespace millrace
