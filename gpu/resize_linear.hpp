#pragma once

#include <cstdint>
#include <vector>

#include "gpu/letterbox.hpp"

namespace millrace {

/// cv2.resize(INTER_LINEAR) on RGB, equal to the bit: two taps for each axis in fixed point.
/// If both sides shrink to exactly half, it is the mean of four pixels.
/// It computes with integers only, so every CPU gives the same bytes.
/// Returns 3 * width * height bytes without padding. Sizes are at least 1.
std::vector<std::uint8_t> resize_linear(const Image8& pixels, int width, int height);

}  // namespace millrace
