#pragma once

#include <cstdint>
#include <memory>

namespace millrace {

/// RGB, 8 bits a channel, rows packed (3 * width bytes), in host memory. A view: the memory is somebody else's.
struct Image8 {
  const std::uint8_t* data = nullptr;
  int width = 0, height = 0;
};

/// The same with its memory.
struct PixelBuffer {
  int width = 0, height = 0;
  std::shared_ptr<std::uint8_t> data;
};

}  // namespace millrace
