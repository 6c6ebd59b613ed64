#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "stages/point_finder.hpp"

namespace millrace {

/// The points that PointFinder finds, from all values at once.
inline std::vector<std::vector<Point>> slow_points(const Extent& size, int channels, std::span<const float> values,
                                                   std::size_t most, float least) {
  std::vector<std::vector<Point>> found(static_cast<std::size_t>(channels));
  const auto index = [&](const Extent& at, int k) {
    return static_cast<std::size_t>(
        ((std::int64_t{at.rows} * size.lines + at.lines) * size.columns + at.columns) * channels + k);
  };
  const auto inside = [&](const Extent& at) {
    return at.rows >= 0 && at.lines >= 0 && at.columns >= 0 && at.rows < size.rows && at.lines < size.lines &&
           at.columns < size.columns;
  };
  for (int k = 0; k < channels; ++k) {
    std::vector<Point>& of_channel = found[static_cast<std::size_t>(k)];
    for (std::size_t i = static_cast<std::size_t>(k); i < values.size(); i += static_cast<std::size_t>(channels)) {
      const int place = static_cast<int>(i) / channels;
      const Extent at{place / size.columns / size.lines, place / size.columns % size.lines, place % size.columns};
      bool largest = values[i] >= least;
      for (int r = -1; r <= 1; ++r) {
        for (int l = -1; l <= 1; ++l) {
          for (int c = -1; c <= 1; ++c) {
            const Extent other{at.rows + r, at.lines + l, at.columns + c};
            if (other == at || !inside(other)) continue;
            const std::size_t there = index(other, k);
            largest = largest && (values[there] < values[i] || (values[there] == values[i] && there > i));
          }
        }
      }
      if (!largest) continue;
      const auto place_along = [&](Extent step) {
        const int position = at.rows * step.rows + at.lines * step.lines + at.columns * step.columns;
        const Extent before{at.rows - step.rows, at.lines - step.lines, at.columns - step.columns};
        const Extent after{at.rows + step.rows, at.lines + step.lines, at.columns + step.columns};
        if (!inside(before) || !inside(after)) return position + 0.5;
        // The parabola a t^2 + b t + c through -1, 0 and 1 has its top at -b / 2a.
        const double low = static_cast<double>(values[index(before, k)]), top = static_cast<double>(values[i]);
        const double high = static_cast<double>(values[index(after, k)]);
        const double a = (low + high) / 2 - top, b = (high - low) / 2;
        return a == 0 ? position + 0.5 : position + 0.5 - b / (2 * a);
      };
      of_channel.push_back({place_along({1, 0, 0}), place_along({0, 1, 0}), place_along({0, 0, 1}), values[i]});
    }
    std::ranges::stable_sort(of_channel, std::ranges::greater{}, &Point::value);
    of_channel.resize(std::min(of_channel.size(), most));
  }
  return found;
}

/// Checks that both have the same points.
inline void check_equal(const std::vector<std::vector<Point>>& found, const std::vector<std::vector<Point>>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t k = 0; k < found.size(); ++k) {
    REQUIRE(found[k].size() == expected[k].size());
    for (std::size_t i = 0; i < found[k].size(); ++i) {
      const Point &one = found[k][i], &other = expected[k][i];
      CHECK(one.value == other.value);
      CHECK(one.rows == doctest::Approx(other.rows).epsilon(1e-9));
      CHECK(one.lines == doctest::Approx(other.lines).epsilon(1e-9));
      CHECK(one.columns == doctest::Approx(other.columns).epsilon(1e-9));
    }
  }
}

}  // namespace millrace
