#include "base/runs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using namespace millrace;

TEST_CASE("area and bounds equal those of the raster") {
  std::mt19937 random(3);
  for (const auto& [width, height] : {std::pair{1, 1}, {1, 9}, {9, 1}, {7, 5}, {40, 31}, {2, 100}}) {
    for (int density = 0; density <= 20; ++density) {
      RunBuilder builder;
      std::int64_t area = 0;
      int x0 = width, y0 = height, x1 = 0, y1 = 0;
      for (int x = 0; x < width; ++x) {
        for (int y = 0; y < height; ++y) {
          const bool inside = static_cast<int>(random() % 20) < density;
          builder.append(inside, 1);
          if (!inside) continue;
          ++area;
          x0 = std::min(x0, x), y0 = std::min(y0, y), x1 = std::max(x1, x + 1), y1 = std::max(y1, y + 1);
        }
      }
      const auto counts = builder.take();
      CHECK(run_area(counts) == area);
      CHECK(run_bounds(counts, height) == (area == 0 ? PixelBox{} : PixelBox{x0, y0, x1 - x0, y1 - y0}));
    }
  }
}

TEST_CASE("runs join, start with zeros, and the builder can be used again") {
  RunBuilder builder;
  builder.append(true, 2);
  builder.append(true, 3);
  builder.append(false, 0);
  builder.append(true, 1);
  builder.append(false, 4);
  CHECK(builder.take() == std::vector<std::uint32_t>{0, 6, 4});
  builder.append(false, 5);
  CHECK(builder.take() == std::vector<std::uint32_t>{5});
}

TEST_CASE("a run beyond the end of a column, and runs of length 0 from other writers") {
  CHECK(run_bounds(std::vector<std::uint32_t>{3, 2, 7}, 4) == PixelBox{0, 0, 2, 4});
  CHECK(run_bounds(std::vector<std::uint32_t>{3, 0, 1, 2, 6}, 4) == PixelBox{1, 0, 1, 2});
  CHECK(run_bounds(std::vector<std::uint32_t>{12}, 4) == PixelBox{});
  CHECK(run_bounds(std::vector<std::uint32_t>{}, 4) == PixelBox{});
}
