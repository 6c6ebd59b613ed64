#include "gpu/resample.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <random>

using namespace millrace;

namespace {

std::vector<std::uint8_t> noise(int width, int height, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> pixels(3 * static_cast<std::size_t>(width) * static_cast<std::size_t>(height));
  for (auto& p : pixels) p = random() % 4 == 0 ? 255 : static_cast<std::uint8_t>(random());
  return pixels;
}

/// A triangle filter at one point by its definition, in double precision, without fixed point.
double filtered(int from, int to, int i, auto&& value) {
  const double scale = static_cast<double>(from) / to, width = std::max(1.0, scale), centre = (i + 0.5) * scale - 0.5;
  double sum = 0, weights = 0;
  for (int k = 0; k < from; ++k) {
    const double weight = 1 - std::abs(k - centre) / width;
    if (weight <= 0) continue;
    sum += weight * value(k);
    weights += weight;
  }
  return sum / weights;
}

}  // namespace

TEST_CASE("a triangle filter equals its definition, within the rounding of its two passes") {
  for (const auto& [from_w, from_h, to_w, to_h] : std::vector<std::array<int, 4>>{{1, 1, 1, 1},
                                                                                  {1, 1, 8, 5},
                                                                                  {1, 40, 1, 7},
                                                                                  {40, 1, 7, 1},
                                                                                  {64, 48, 33, 21},
                                                                                  {33, 21, 64, 48},
                                                                                  {50, 40, 50, 13},
                                                                                  {50, 40, 13, 40},
                                                                                  {31, 57, 30, 58},
                                                                                  {3000, 2, 9, 2},
                                                                                  {300, 200, 1, 1}}) {
    CAPTURE(from_w);
    CAPTURE(from_h);
    CAPTURE(to_w);
    CAPTURE(to_h);
    const auto pixels = noise(from_w, from_h, static_cast<unsigned>(from_w + to_w));
    const auto result = resample_triangle({pixels.data(), from_w, from_h}, to_w, to_h);
    REQUIRE(result.size() == 3 * static_cast<std::size_t>(to_w) * static_cast<std::size_t>(to_h));
    double worst = 0;
    for (int c = 0; c < 3; ++c) {
      for (int y = 0; y < to_h; ++y) {
        for (int x = 0; x < to_w; ++x) {
          const double expected = filtered(from_h, to_h, y, [&](int sy) {
            return filtered(from_w, to_w, x, [&](int sx) {
              return static_cast<double>(pixels[static_cast<std::size_t>((sy * from_w + sx) * 3 + c)]);
            });
          });
          worst = std::max(worst, std::abs(expected - result[static_cast<std::size_t>((y * to_w + x) * 3 + c)]));
        }
      }
    }
    CHECK(worst <= 1.01);  // each pass rounds by half a level
  }
}

TEST_CASE("flat pictures stay flat, and a resize to the same size changes nothing") {
  const std::vector<std::uint8_t> white(3 * 100 * 80, 255);
  const auto result = resample_triangle({white.data(), 100, 80}, 37, 91);
  CHECK(std::all_of(result.begin(), result.end(), [](std::uint8_t v) { return v == 255; }));
  const auto pixels = noise(23, 17, 1);
  CHECK(resample_triangle({pixels.data(), 23, 17}, 23, 17) == pixels);
}
