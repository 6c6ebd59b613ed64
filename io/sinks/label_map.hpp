#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/results/object.hpp"

namespace millrace {

/// A label map of the full picture as a 16-bit grey PNG.
/// 0 is background, n is object n of the segment line, counted from 1. Objects without a mask leave no pixels.
/// Where masks overlap, the higher score wins. With equal scores, the earlier object wins.
/// Memory is the column spans of the masks and a band of rows, not the picture.
/// Throws std::invalid_argument for more than 65,535 objects, and for a mask that does not have the picture's size.
std::vector<std::uint8_t> encode_label_map(int width, int height, std::span<const Object> objects);

}  // namespace millrace
