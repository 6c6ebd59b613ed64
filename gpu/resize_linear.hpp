#pragma once

#include <cstdint>
#include <vector>

#include "gpu/letterbox.hpp"

namespace millrace {

/// cv2.resize(INTER_LINEAR) on RGB, to the bit: two taps a side in fixed point, and where both sides are halved exactly
/// the mean of four. Integers alone, so the bytes are the same on every CPU. Returns 3 * width * height packed bytes.
/// Sizes are at least 1.
std::vector<std::uint8_t> resize_linear(const Image8& pixels, int width, int height);

}  // namespace millrace
