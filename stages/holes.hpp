#pragma once

#include <cstdint>
#include <span>

#include "base/hole.hpp"
#include "io/results/label_rows.hpp"

namespace millrace {

/// The label of pixels that could not be read. No class has it: a package has at most 254 channels.
inline constexpr std::uint8_t hole_label = 255;

/// Sets the labels of pixels in holes to `hole_label`. `labels` are whole rows of `columns` pixels, from row `first` on.
/// `values` are [row][column][channel] of the same rows and become 0; empty: there are none.
/// Returns the number of these pixels. Holes do not overlap.
std::int64_t cover_holes(std::span<const Hole> holes, int first, int columns, std::span<std::uint8_t> labels,
                         std::span<float> values = {});

/// The number of pixels with `hole_label`.
std::int64_t count_holes(const LabelRows& labels);

}  // namespace millrace
