#pragma once

#include <string>

#include "io/decode/decode.hpp"

namespace millrace {

/// Where libmillrace_imgcodecs.so is; empty where find_plugin() (base/plugin.hpp) finds none.
std::string find_imgcodecs_plugin();

/// Loads the plugin and says nothing, or what is wrong and what to do; for `millrace doctor`.
std::string check_imgcodecs_plugin();

/// `probe` for BMP, WebP, TIFF, PNM and JPEG 2000; the size is read by our own code. Other formats are refused by name.
PictureInfo probe_imgcodecs(std::span<const std::uint8_t> bytes, PictureFormat format, const DecodeLimits& limits);

/// `decode` for them by OpenCV imgcodecs, loaded here; codec_missing if it is not installed.
void decode_imgcodecs(std::span<const std::uint8_t> bytes, const PictureInfo& info, std::uint8_t* pixels,
                      std::vector<std::string>& warnings);

}  // namespace millrace
