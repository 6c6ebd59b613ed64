#include "stages/window_mask.hpp"

#include <doctest/doctest.h>

#include <random>

namespace millrace {
namespace {

struct Case {
  Extent item, roi, mask;
  int align = 1;
  Mirror from_end{};
};

/// The same place by place: the window touches a marked place if they share a point. An axis is an interval of length
/// item x mask, so that both kinds of places have whole numbers as edges.
bool expected(const Case& c, const WindowGrid& grid, const std::vector<bool>& marked, std::int64_t window) {
  const Extent start = grid.start(window);
  const auto touches = [&](const Extent& place) {
    for (int axis = 0; axis < 3; ++axis) {
      const std::int64_t item = c.item.along(axis), mask = c.mask.along(axis);
      const std::int64_t begin = std::max(start.along(axis) - grid.before.along(axis), 0),
                         end = std::min<std::int64_t>(start.along(axis) - grid.before.along(axis) + c.roi.along(axis),
                                                      item);
      if (place.along(axis) * item >= end * mask || (place.along(axis) + 1) * item <= begin * mask) return false;
    }
    return true;
  };
  for (std::size_t i = 0; i < marked.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    const Extent place{static_cast<int>(index / c.mask.row_values()),
                       static_cast<int>(index / c.mask.columns % c.mask.lines),
                       static_cast<int>(index % c.mask.columns)};
    if (marked[i] && touches(place)) return true;
  }
  return false;
}

TEST_CASE("windows that touch no marked place of a mask need no model, as a slow loop finds them") {
  std::mt19937 random(7);
  int needed = 0, all = 0;
  for (const Case& c :
       {Case{{1, 1, 1}, {4, 1, 4}, {1, 1, 1}}, Case{{60, 1, 90}, {8, 1, 8}, {60, 1, 90}},
        Case{{60, 1, 90}, {8, 1, 8}, {7, 1, 11}}, Case{{13, 1, 200}, {4, 1, 16}, {40, 1, 515}, 4},
        Case{{15, 20, 17}, {4, 6, 5}, {15, 20, 17}}, Case{{15, 20, 17}, {4, 6, 5}, {4, 7, 70}},
        Case{{5, 30, 3}, {8, 4, 4}, {2, 9, 2}, 2}, Case{{15, 20, 17}, {4, 6, 5}, {6, 9, 8}, 2, {true, false, true}}}) {
    WindowOptions options;
    options.roi = c.roi;
    options.overlap = 0.5;
    options.align = c.align;
    options.from_end = c.from_end;
    const WindowGrid grid(c.item, options);
    for (const int marks : {0, 1, 3}) {
      WindowMask mask(c.mask);
      std::vector<bool> marked(static_cast<std::size_t>(c.mask.values()));
      for (int i = 0; i < marks; ++i) {
        const auto place = std::uniform_int_distribution<std::int64_t>(0, c.mask.values() - 1)(random);
        mask.mark(place);
        marked[static_cast<std::size_t>(place)] = true;
      }
      for (std::int64_t window = 0; window < grid.windows(); ++window) {
        const bool needs = expected(c, grid, marked, window);
        CHECK(mask.needs_model(grid, window) == needs);
        needed += needs ? 1 : 0;
        ++all;
      }
    }
  }
  CHECK(needed > all / 50);
  CHECK(needed < all / 2);
}

}  // namespace
}  // namespace millrace
