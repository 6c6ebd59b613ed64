#include "base/runs.hpp"

#include <algorithm>

namespace millrace {

std::int64_t run_area(std::span<const std::uint32_t> counts) {
  std::int64_t area = 0;
  for (std::size_t i = 1; i < counts.size(); i += 2) area += counts[i];
  return area;
}

PixelBox run_bounds(std::span<const std::uint32_t> counts, int height) {
  const std::int64_t rows = height;
  std::int64_t left = -1, right = 0, top = rows, bottom = 0;
  std::int64_t position = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::int64_t begin = position;
    position += counts[i];
    if (i % 2 == 0 || counts[i] == 0) continue;
    const std::int64_t last = position - 1;
    if (left < 0) left = begin / rows;
    right = last / rows;
    if (begin / rows == right) {
      top = std::min(top, begin % rows);
      bottom = std::max(bottom, last % rows);
    } else {  // a run that continues in the next column covers the last row and the first row
      top = 0;
      bottom = rows - 1;
    }
  }
  if (left < 0) return {};
  return {static_cast<int>(left), static_cast<int>(top), static_cast<int>(right - left + 1),
          static_cast<int>(bottom - top + 1)};
}

}  // namespace millrace
