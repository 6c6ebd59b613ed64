#include "io/sinks/mask_spans.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

namespace millrace {

std::vector<ColumnSpan> column_spans(std::span<const std::uint32_t> counts, int width, int height) {
  const auto pixels = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (pixels != std::int64_t{width} * height) {
    throw std::invalid_argument("a mask of " + std::to_string(pixels) + " pixels for a picture of " +
                                std::to_string(width) + "x" + std::to_string(height));
  }
  std::vector<ColumnSpan> spans;
  std::int64_t position = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::int64_t run_end = position + counts[i];
    // Runs with an even index are outside of the mask.
    if (i % 2 == 0) position = run_end;
    while (position < run_end) {
      const std::int64_t column = position / height;
      const std::int64_t end = std::min(run_end, (column + 1) * height);
      spans.push_back({static_cast<int>(column), static_cast<int>(position - column * height),
                       static_cast<int>(end - column * height)});
      position = end;
    }
  }
  return spans;
}

}  // namespace millrace
