#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

/// The interface between the program and libmillrace_imgcodecs.so: plain data and functions. No exception crosses it.
struct ImgcodecsRequest {
  const std::uint8_t* bytes = nullptr;
  std::size_t size = 0;
  int width = 0, height = 0;   ///< expected, in the file's orientation
  bool alpha_counts = true;    ///< a fourth channel is alpha, blended over white; else it is ignored
  bool premultiplied = false;  ///< colours of 8-bit pixels with alpha have been multiplied by it already
  void* raster = nullptr;
  std::uint8_t* (*row)(void* raster, int y) = nullptr;  ///< where RGB8 row y goes
  void (*commit)(void* raster, int end) = nullptr;      ///< rows before `end` are written
  char* message = nullptr;                              ///< receives a sentence on failure, zero-terminated
  std::size_t message_size = 0;
};

enum class ImgcodecsResult { ok, corrupt_data, unsupported_format, out_of_memory };

/// The only function of the plug-in.
using ImgcodecsDecode = ImgcodecsResult(const ImgcodecsRequest& request);
inline constexpr const char* imgcodecs_decode_symbol = "millrace_imgcodecs_decode";

}  // namespace millrace
