#pragma once

#include <cstdint>
#include <vector>

#include "gpu/letterbox.hpp"

namespace millrace {

/// Pillow's Image.resize(BILINEAR) on RGB, to the bit: a triangle filter as wide as the reduction, applied to rows and
/// then to columns, weights in fixed point with 22 fraction bits, each pass rounded to 8 bits; a pass that changes no
/// size is left out. Returns 3 * width * height packed bytes. Sizes are at least 1.
std::vector<std::uint8_t> resample_triangle(const Image8& pixels, int width, int height);

}  // namespace millrace
