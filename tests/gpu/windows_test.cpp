#include "gpu/windows.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace millrace {
namespace {

using Starts = std::vector<int>;

WindowGrid grid_of(int length, int roi, double overlap, int align = 1) {
  WindowOptions options;
  options.roi = {roi, 1, roi};
  options.overlap = overlap;
  options.align = align;
  return WindowGrid({length, 1, length}, options);
}

// Starts and padding are those of monai.data.utils.dense_patch_slices and sliding_window_inference, MONAI 1.6.1.
TEST_CASE("windows start where MONAI's start") {
  CHECK(grid_of(10, 4, 0).rows == Starts{0, 4, 6});
  CHECK(grid_of(10, 4, 0.25).rows == Starts{0, 3, 6});
  CHECK(grid_of(10, 4, 0.5).rows == Starts{0, 2, 4, 6});
  CHECK(grid_of(10, 4, 0.75).rows == Starts{0, 1, 2, 3, 4, 5, 6});
  CHECK(grid_of(10, 4, 0.9).rows == Starts{0, 1, 2, 3, 4, 5, 6});
  CHECK(grid_of(9, 4, 0).rows == Starts{0, 4, 5});
  CHECK(grid_of(4, 4, 0.75).rows == Starts{0});
  CHECK(grid_of(5, 4, 0).rows == Starts{0, 1});
  CHECK(grid_of(1, 1, 0).rows == Starts{0});
}

TEST_CASE("an item smaller than a window is padded on both sides, an odd value behind") {
  const WindowGrid grid = grid_of(1, 4, 0.5);
  CHECK(grid.rows == Starts{0});
  CHECK(grid.before == Extent{1, 0, 1});
  CHECK(grid.complete_before(0) == 0);
  CHECK(grid.complete_before(1) == 4);
}

TEST_CASE("aligned windows start at multiples, and the last one reaches the end") {
  const WindowGrid grid = grid_of(21, 8, 0.25, 4);
  CHECK(grid.rows == Starts{0, 4, 8, 12, 16});
  CHECK(grid_of(8, 8, 0.25, 4).rows == Starts{0});
}

TEST_CASE("windows are numbered with columns fastest, and bands know which rows are complete") {
  WindowOptions options;
  options.roi = {2, 3, 4};
  options.overlap = 0;
  const WindowGrid grid({5, 4, 6}, options);
  CHECK(grid.windows() == 3 * 2 * 2);
  CHECK(grid.start(0) == Extent{0, 0, 0});
  CHECK(grid.start(1) == Extent{0, 0, 2});
  CHECK(grid.start(2) == Extent{0, 1, 0});
  CHECK(grid.start(11) == Extent{3, 1, 2});
  CHECK(grid.band_of(11) == 2);
  CHECK(grid.complete_before(2) == 3);
  CHECK(grid.complete_before(3) == 5);
}

TEST_CASE("sizes and overlaps without a meaning are refused") {
  CHECK_THROWS_AS(grid_of(0, 4, 0), std::invalid_argument);
  CHECK_THROWS_AS(grid_of(4, 0, 0), std::invalid_argument);
  CHECK_THROWS_AS(grid_of(4, 4, 1), std::invalid_argument);
  CHECK_THROWS_AS(grid_of(4, 4, -0.1), std::invalid_argument);
  CHECK_THROWS_AS(grid_of(4, 4, std::nan("")), std::invalid_argument);
}

// From compute_importance_map(mode="gaussian"), MONAI 1.6.1.
TEST_CASE("weights are a clamped Gaussian") {
  WindowOptions options;
  options.roi = {4, 1, 3};
  const std::vector<float> weights = window_weights(options);
  const double expected_row[] = {0.01110900, 0.60653066}, expected_column[] = {0.02856550, 1};
  for (std::size_t row = 0; row < 4; ++row) {
    for (std::size_t column = 0; column < 3; ++column) {
      const double product = expected_row[row == 0 || row == 3 ? 0 : 1] * expected_column[column == 1 ? 1 : 0];
      CHECK(weights[row * 3 + column] == doctest::Approx(std::max(product, 1e-3)).epsilon(1e-5));
    }
  }
  options.weights = WindowWeights::constant;
  CHECK(window_weights(options) == std::vector<float>(12, 1.0F));
}

TEST_CASE("windows are mirrored along each axis, alone and together") {
  CHECK(mirrors_of({}) == std::vector<Mirror>{{}});
  CHECK(mirrors_of({false, false, true}) == std::vector<Mirror>{{}, {false, false, true}});
  CHECK(mirrors_of({true, false, true}) ==
        std::vector<Mirror>{{}, {false, false, true}, {true, false, false}, {true, false, true}});
  const std::vector<Mirror> all = mirrors_of({true, true, true});
  CHECK(all.size() == 8);
  for (const Mirror& mirror : all) CHECK(std::ranges::count(all, mirror) == 1);
}

TEST_CASE("places of a window have an index in each order of its axes") {
  const Extent roi{4, 5, 3};
  std::vector<float> values(static_cast<std::size_t>(roi.values()));
  std::iota(values.begin(), values.end(), 0.0F);
  std::vector<WindowOrder> orders;
  for (std::array<int, 3> axes{0, 1, 2};;) {
    orders.push_back({axes[0], axes[1], axes[2]});
    if (!std::ranges::next_permutation(axes).found) break;
  }
  for (const WindowOrder& order : orders) {
    for (std::int64_t i = 0; i < roi.values(); ++i) CHECK(place_of(roi, order, place_at(roi, order, i)) == i);
    for (const WindowOrder& to : orders) {
      std::vector<float> there(values.size()), back(values.size());
      reorder_window(roi, order, to, values.data(), there.data());
      int wrong = 0;
      for (std::int64_t i = 0; i < roi.values(); ++i)
        wrong +=
            static_cast<std::int64_t>(there[static_cast<std::size_t>(i)]) == place_of(roi, order, place_at(roi, to, i))
                ? 0
                : 1;
      CHECK(wrong == 0);
      reorder_window(roi, to, order, there.data(), back.data());
      CHECK(back == values);
    }
  }
}

TEST_CASE("windows from the end of an axis are those of the axis in reverse") {
  for (const int length : {1, 3, 7, 8, 9, 23}) {
    for (const int align : {1, 4}) {
      WindowOptions options;
      options.roi = {8, 8, 8};
      options.overlap = 0.3;
      options.align = align;
      const WindowGrid forwards({length, 9, length}, options);
      options.from_end = {true, false, true};
      const WindowGrid backwards({length, 9, length}, options);
      CHECK(backwards.padded() == forwards.padded());
      CHECK(backwards.lines == forwards.lines);
      CHECK(backwards.before.lines == forwards.before.lines);
      CHECK(std::ranges::is_sorted(backwards.rows));
      REQUIRE(backwards.rows.size() == forwards.rows.size());
      for (std::size_t i = 0; i < forwards.rows.size(); ++i) {
        // Places of the item from its other end.
        const int first = forwards.rows[i] - forwards.before.rows,
                  last = backwards.rows[forwards.rows.size() - 1 - i] + 7 - backwards.before.rows;
        CHECK(first == length - 1 - last);
        CHECK(backwards.columns[i] == backwards.rows[i]);
      }
    }
  }
}

}  // namespace
}  // namespace millrace
