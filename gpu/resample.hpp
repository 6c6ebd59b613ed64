#pragma once

#include <cstdint>
#include <vector>

#include "gpu/letterbox.hpp"

namespace millrace {

/// Image.resize(BILINEAR) of Pillow 13 on RGB, to the bit: a triangle filter as wide as the reduction, along rows and
/// then along columns, weights in fixed point with 22 fraction bits, each pass rounded to 8 bits; a pass that changes
/// no size is left out. A picture that loses more than twice as many rows as columns is done along columns first
/// (Pillow before 13 never does that: one level of difference there). Returns 3 * width * height packed bytes. Sizes
/// are at least 1.
std::vector<std::uint8_t> resample_triangle(const Image8& pixels, int width, int height);

/// A rectangle of the resized picture.
struct PixelWindow {
  int left = 0, top = 0, width = 0, height = 0;
};
/// The same, and of the result this part alone: no more is computed or kept than it takes.
std::vector<std::uint8_t> resample_triangle(const Image8& pixels, int width, int height, const PixelWindow& window);

}  // namespace millrace
