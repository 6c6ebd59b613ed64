#include "stages/window_filter.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>

namespace millrace {
namespace {

struct Case {
  Extent item, roi;
  int channels;
  int align = 1;
  Mirror from_end{};
};

/// The same place by place.
bool expected(const Case& c, const WindowGrid& grid, const EmptyRule& rule, const std::vector<float>& values,
              std::int64_t window) {
  const Extent start = grid.start(window);
  for (int r = 0; r < c.item.rows; ++r) {
    for (int l = 0; l < c.item.lines; ++l) {
      for (int x = 0; x < c.item.columns; ++x) {
        const int row = r + grid.before.rows - start.rows, line = l + grid.before.lines - start.lines,
                  column = x + grid.before.columns - start.columns;
        if (row < 0 || line < 0 || column < 0 || row >= c.roi.rows || line >= c.roi.lines || column >= c.roi.columns)
          continue;
        bool above = true, below = true;
        for (int k = 0; k < c.channels; ++k) {
          const float value = values[static_cast<std::size_t>(
              ((std::int64_t{r} * c.item.lines + l) * c.item.columns + x) * c.channels + k)];
          above = above && rule.above && value > *rule.above;
          below = below && rule.below && value < *rule.below;
        }
        if (!above && !below) return true;
      }
    }
  }
  return false;
}

TEST_CASE("windows whose places are all empty need no model, as a slow loop finds them") {
  std::mt19937 random(5);
  for (const Case& c : {Case{{1, 1, 1}, {4, 1, 4}, 3}, Case{{40, 1, 60}, {8, 1, 8}, 3},
                        Case{{13, 1, 9}, {4, 1, 16}, 3, 4}, Case{{15, 20, 17}, {4, 6, 5}, 1},
                        Case{{5, 30, 3}, {8, 4, 4}, 1, 2}, Case{{15, 20, 17}, {4, 6, 5}, 1, 2, {true, false, true}},
                        Case{{5, 30, 3}, {8, 4, 4}, 1, 4, {true, true, true}}}) {
    WindowOptions options;
    options.roi = c.roi;
    options.overlap = 0.5;
    options.align = c.align;
    options.from_end = c.from_end;
    const WindowGrid grid(c.item, options);
    for (const EmptyRule& rule : {EmptyRule{220, {}}, EmptyRule{{}, 10}, EmptyRule{220, 10}}) {
      // Few places are not empty, and a place with one bright channel is not bright.
      const auto count = static_cast<std::size_t>(c.item.values() * c.channels);
      std::vector<std::uint8_t> bytes(count);
      for (auto& value : bytes) value = rule.above ? 221 : 9;
      for (std::size_t i = 0; i < 1 + count / 150; ++i) bytes[random() % count] = random() % 2 == 0 ? 220 : 10;
      std::vector<float> floats(bytes.begin(), bytes.end());
      int needed = 0;
      for (const bool f32 : {false, true}) {
        for (const int step : {1, 3, 100}) {
          WindowFilter filter(grid, rule, c.channels, f32 ? DType::f32 : DType::u8);
          for (int row = 0; row < c.item.rows; row += step) {
            const auto at = static_cast<std::size_t>(std::int64_t{row} * c.item.row_values() * c.channels);
            filter.add(row, std::min(step, c.item.rows - row),
                       f32 ? static_cast<const void*>(floats.data() + at) : bytes.data() + at);
          }
          needed = 0;
          for (std::int64_t window = 0; window < grid.windows(); ++window) {
            CHECK(filter.needs_model(window) == expected(c, grid, rule, floats, window));
            needed += filter.needs_model(window) ? 1 : 0;
          }
        }
      }
      CHECK(needed > 0);
      if (grid.windows() > 20) CHECK(needed < grid.windows());
    }
  }
}

TEST_CASE("rows may begin anywhere, and a window without all its rows needs the model") {
  WindowOptions options;
  options.roi = {4, 1, 4};
  options.overlap = 0;
  const WindowGrid grid({16, 1, 4}, options);
  const std::vector<std::uint8_t> rows(16 * 4, 255);
  WindowFilter filter(grid, {200, {}}, 1, DType::u8);
  filter.add(5, 6, rows.data());
  const auto needed = [&] {
    std::vector<bool> all;
    for (int window = 0; window < 4; ++window) all.push_back(filter.needs_model(window));
    return all;
  };
  CHECK(needed() == std::vector<bool>{true, true, true, true});  // row 4 is missing, and row 11
  filter.add(11, 5, rows.data());
  CHECK(needed() == std::vector<bool>{true, true, false, false});
}

TEST_CASE("a voxel that is no number is not empty") {
  WindowOptions options;
  options.roi = {1, 1, 1};
  const std::vector<float> row{std::numeric_limits<float>::quiet_NaN()};
  WindowFilter filter(WindowGrid({1, 1, 1}, options), {-1, 1}, 1, DType::f32);
  filter.add(0, 1, row.data());
  CHECK(filter.needs_model(0));
}

}  // namespace
}  // namespace millrace
