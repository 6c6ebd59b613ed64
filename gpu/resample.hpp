#pragma once

#include <cstdint>
#include <vector>

#include "gpu/letterbox.hpp"

namespace millrace {

/// Image.resize(BILINEAR) of Pillow 13 on RGB, equal to the bit.
/// - The filter is a triangle as wide as the reduction; its weights are in fixed point with 22 fraction bits.
/// - It runs along rows, then along columns, and rounds to 8 bits after each pass. A pass without a change is skipped.
/// - If it removes more than twice as many rows as columns, the columns come first.
///   Pillow before 13 does not do that and differs there by one level.
/// Returns 3 * width * height bytes without padding. Sizes are at least 1.
std::vector<std::uint8_t> resample_triangle(const Image8& pixels, int width, int height);

/// A rectangle of the resized picture.
struct PixelWindow {
  int left = 0, top = 0, width = 0, height = 0;
};
/// The same, but computes only this part of the result.
std::vector<std::uint8_t> resample_triangle(const Image8& pixels, int width, int height, const PixelWindow& window);

}  // namespace millrace
