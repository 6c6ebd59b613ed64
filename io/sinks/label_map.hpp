#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/results/object.hpp"

namespace millrace {

/// A label map of the full picture as a 16-bit grey PNG: 0 is background, n the n-th object in the order of the segment
/// line (from 1). Where masks overlap, the higher score wins, with equal scores the earlier object. Objects without a
/// mask leave no pixels. Memory is the masks' column spans and a band of rows, not the picture. Throws
/// std::invalid_argument for more than 65,535 objects and for a mask that does not have the picture's size.
std::vector<std::uint8_t> encode_label_map(int width, int height, std::span<const Object> objects);

}  // namespace millrace
