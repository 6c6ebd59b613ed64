#include "stages/holes.hpp"

#include <algorithm>

namespace millrace {

std::int64_t cover_holes(std::span<const Hole> holes, int first, int columns, std::span<std::uint8_t> labels,
                         std::span<float> values) {
  std::int64_t covered = 0;
  const std::size_t channels = labels.empty() ? 0 : values.size() / labels.size();
  const int end = first + static_cast<int>(labels.size() / static_cast<std::size_t>(columns));
  for (const Hole& hole : holes) {
    const auto width = static_cast<std::size_t>(hole.end_column - hole.first_column);
    for (int row = std::max(hole.first_row, first); row < std::min(hole.end_row, end); ++row) {
      const auto at =
          static_cast<std::size_t>(std::int64_t{row - first} * columns) + static_cast<std::size_t>(hole.first_column);
      std::ranges::fill(labels.subspan(at, width), hole_label);
      std::ranges::fill(values.subspan(channels * at, channels * width), 0.0F);
      covered += static_cast<std::int64_t>(width);
    }
  }
  return covered;
}

std::int64_t count_holes(const LabelRows& labels) {
  std::int64_t count = 0;
  labels.read(
      [&](int /*first*/, std::span<const std::uint8_t> rows) { count += std::ranges::count(rows, hole_label); });
  return count;
}

}  // namespace millrace
