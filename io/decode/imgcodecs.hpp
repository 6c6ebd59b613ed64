#pragma once

#include <string>

#include "io/decode/decode.hpp"

namespace millrace {

/// Path of libmillrace_imgcodecs.so; empty if find_plugin() (base/plugin.hpp) does not find it.
std::string find_imgcodecs_plugin();

/// Loads the plug-in, for `millrace doctor`. Returns what is wrong and what to do, or an empty text.
std::string check_imgcodecs_plugin();

/// `probe` for BMP, WebP, TIFF, PNM and JPEG 2000. Our own code reads the size.
/// Other formats throw `unsupported_format` with their name.
PictureInfo probe_imgcodecs(std::span<const std::uint8_t> bytes, PictureFormat format, const DecodeLimits& limits);

/// `decode` for these formats, by the codecs of OpenCV. Loads the plug-in; throws `codec_missing` if that fails.
void decode_imgcodecs(std::span<const std::uint8_t> bytes, const PictureInfo& info, std::uint8_t* pixels,
                      std::vector<std::string>& warnings);

}  // namespace millrace
