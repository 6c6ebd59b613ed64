#include "stages/point_finder.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "tests/stages/slow_points.hpp"

namespace millrace {
namespace {

std::vector<std::vector<Point>> by_slabs(const Extent& size, int channels, std::span<const float> values, int most,
                                         float least, int rows) {
  PointFinder finder(size, channels, most, least);
  const auto slab = static_cast<std::size_t>(rows * size.row_values() * channels);
  for (std::size_t begin = 0; begin < values.size(); begin += slab)
    finder.add(values.subspan(begin, std::min(slab, values.size() - begin)));
  return finder.finish();
}

TEST_CASE("points are those of a slow search, for any shape, number of equal values and slab") {
  std::mt19937 random(5);
  std::size_t all = 0;
  for (const Extent size : {Extent{1, 1, 1}, Extent{1, 1, 40}, Extent{40, 1, 1}, Extent{30, 1, 50}, Extent{9, 8, 7},
                            Extent{1, 20, 20}, Extent{20, 1, 200}, Extent{20, 3, 2}, Extent{2, 2, 2}}) {
    for (const int channels : {1, 3}) {
      for (const unsigned levels : {1U, 2U, 4U, 1000U}) {  // few levels have many plateaus
        std::vector<float> values(static_cast<std::size_t>(size.values() * channels));
        for (float& value : values)
          value = static_cast<float>(random() % levels) / static_cast<float>(levels) - (levels == 1000 ? 0.5F : 0);
        for (const auto& [most, least] : {std::pair{1, -9.0F}, {3, -9.0F}, {3, 0.25F}, {1000, 0.0F}, {1000, 0.9F}}) {
          const auto expected = slow_points(size, channels, values, static_cast<std::size_t>(most), least);
          for (const int rows : {1, 2, 5, size.rows})
            check_equal(by_slabs(size, channels, values, most, least, rows), expected);
          for (const auto& of_channel : expected) all += of_channel.size();
        }
      }
    }
  }
  CHECK(all > 1000);
}

TEST_CASE("the top of a blob is found within a small part of a voxel, and the best blobs come first") {
  const Extent size{20, 18, 22};
  const std::vector<Point> tops{{5.3, 6.9, 14.2, 0.7F}, {14.75, 10.5, 4.1, 1}};
  std::vector<float> values;
  for (int row = 0; row < size.rows; ++row) {
    for (int line = 0; line < size.lines; ++line) {
      for (int column = 0; column < size.columns; ++column) {
        double value = 0;
        for (const Point& top : tops) {
          const double r = row + 0.5 - top.rows, l = line + 0.5 - top.lines, c = column + 0.5 - top.columns;
          value += static_cast<double>(top.value) * std::exp(-(r * r + l * l + c * c) / (2 * 1.5 * 1.5));
        }
        values.push_back(static_cast<float>(value));
      }
    }
  }
  const auto found = by_slabs(size, 1, values, 10, 0.5F, 3).front();
  REQUIRE(found.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(std::abs(found[i].rows - tops[1 - i].rows) < 0.03);
    CHECK(std::abs(found[i].lines - tops[1 - i].lines) < 0.03);
    CHECK(std::abs(found[i].columns - tops[1 - i].columns) < 0.03);
  }
}

TEST_CASE("a plateau has one point, at its first pixel, and an edge is not refined") {
  const std::vector<float> values{9, 8, 0, 0, 0, 0,  //
                                  0, 0, 0, 5, 5, 0,  //
                                  0, 0, 0, 5, 5, 3,  //
                                  0, 0, 0, 0, 0, 0};
  const auto found = by_slabs({4, 1, 6}, 1, values, 9, 1, 1).front();
  REQUIRE(found.size() == 2);
  CHECK(found[0].rows == 0.5);
  CHECK(found[0].columns == 0.5);
  // Half a pixel towards the equal neighbours.
  CHECK(found[1].rows == 2);
  CHECK(found[1].columns == 4);
  CHECK(by_slabs({4, 1, 6}, 1, std::vector<float>(24, 0), 9, 0.5F, 4).front().empty());
}

}  // namespace
}  // namespace millrace
