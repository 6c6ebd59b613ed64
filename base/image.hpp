#pragma once

#include <cstdint>
#include <memory>

namespace millrace {

/// A view of a picture in host memory: RGB, 8 bits per channel, rows without padding (3 * width bytes).
/// It does not own the pixels.
struct Image8 {
  const std::uint8_t* data = nullptr;
  int width = 0, height = 0;
};

/// A picture in the layout of Image8. It shares ownership of the pixels.
struct PixelBuffer {
  int width = 0, height = 0;
  std::shared_ptr<std::uint8_t> data;
};

}  // namespace millrace
