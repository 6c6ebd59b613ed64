#include "gpu/outline.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>

#include "gpu/finite.hpp"
#include "gpu/ops/outline.hpp"

using namespace millrace;

namespace {

/// A picture of doubles, for bilinear resizing by definition, one value at a time.
/// Source coordinates are those of pixel centres, clamped to the picture.
struct Raster {
  int width = 0, height = 0;
  std::vector<double> values;
  double at(int x, int y) const {
    return values[static_cast<std::size_t>(y) * static_cast<std::size_t>(width) + static_cast<std::size_t>(x)];
  }
};

double sample(const Raster& from, double x, double y) {
  const double cx = std::clamp(x, 0.0, from.width - 1.0), cy = std::clamp(y, 0.0, from.height - 1.0);
  const int x0 = static_cast<int>(cx), y0 = static_cast<int>(cy);
  const int x1 = std::min(x0 + 1, from.width - 1), y1 = std::min(y0 + 1, from.height - 1);
  const double u = cx - x0, v = cy - y0;
  return (1 - u) * (1 - v) * from.at(x0, y0) + u * (1 - v) * from.at(x1, y0) + (1 - u) * v * from.at(x0, y1) +
         u * v * from.at(x1, y1);
}

Raster resized(const Raster& from, int width, int height) {
  Raster to{width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      to.values.push_back(sample(from, (x + 0.5) * from.width / width - 0.5, (y + 0.5) * from.height / height - 0.5));
    }
  }
  return to;
}

Raster reference(const std::vector<float>& logits, const MaskGeometry& g) {
  const Raster low{g.logits_width, g.logits_height, {logits.begin(), logits.end()}};
  const Raster input = resized(low, g.input_width, g.input_height);
  Raster crop{g.crop_width, g.crop_height, {}};
  for (int y = 0; y < g.crop_height; ++y) {
    for (int x = 0; x < g.crop_width; ++x) crop.values.push_back(input.at(x, y));
  }
  return resized(crop, g.picture_width, g.picture_height);
}

enum class Pattern { blobs, noise, ones, minus_ones, zeros, stripes, tiny, one_pixel, magnitudes, above };

/// The rounding of a product near 2 is as large as the distance of two numbers below 2.
constexpr float limit = 1.99F;

std::vector<float> make_logits(const MaskGeometry& g, Pattern pattern, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 5);
  std::uniform_real_distribution<double> uniform(0, 1);
  const int width = g.logits_width, height = g.logits_height;
  struct Blob {
    double x, y, radius;
  };
  std::vector<Blob> blobs;
  for (int i = 0; i < 4; ++i)
    blobs.push_back({uniform(random) * width, uniform(random) * height, (0.05 + 0.2 * uniform(random)) * width});
  std::vector<float> logits;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      double value = -9;
      for (const Blob& b : blobs) value = std::max(value, 9 * (1 - std::hypot(x - b.x, y - b.y) / b.radius));
      switch (pattern) {
        case Pattern::blobs:
          logits.push_back(static_cast<float>(value) + 0.01F * normal(random));
          break;
        case Pattern::noise:
          logits.push_back(normal(random));
          break;
        case Pattern::ones:
          logits.push_back(1);
          break;
        case Pattern::minus_ones:
          logits.push_back(-1);
          break;
        case Pattern::zeros:
          logits.push_back(0);
          break;
        case Pattern::stripes:
          logits.push_back((x + y) % 2 == 0 ? 3.0F : -3.0F);
          break;
        case Pattern::tiny:
          logits.push_back(1e-42F * normal(random));
          break;
        case Pattern::one_pixel:
          logits.push_back(x == width / 2 && y == height / 2 ? 8.0F : -8.0F);
          break;
        case Pattern::magnitudes:  // a large value next to a small one
          logits.push_back(static_cast<float>((uniform(random) - 0.5) * std::pow(10, 60 * uniform(random) - 30)));
          break;
        case Pattern::above:  // rounding decides whether a pixel is above `limit`
          logits.push_back(limit + 0x1p-23F);
          break;
      }
    }
  }
  return logits;
}

/// Counts the pixels that differ from the reference although their value is not within `tolerance` of the threshold.
/// Also checks the sum of the runs.
std::int64_t wrong_pixels(const std::vector<std::uint32_t>& counts, const Raster& expected, double threshold,
                          double tolerance) {
  REQUIRE(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) ==
          static_cast<std::int64_t>(expected.values.size()));
  for (std::size_t i = 1; i < counts.size(); ++i) REQUIRE(counts[i] > 0);
  std::int64_t wrong = 0;
  std::size_t run = 0;
  std::uint32_t left = counts[0];
  for (int x = 0; x < expected.width; ++x) {
    for (int y = 0; y < expected.height; ++y) {
      while (left == 0) left = counts[++run];
      --left;
      const double value = expected.at(x, y);
      if ((run % 2 == 1) != (value > threshold) && std::abs(value - threshold) > tolerance) ++wrong;
    }
  }
  return wrong;
}

/// The runs that the kernels write if their threads run one after another.
std::vector<std::uint32_t> kernel_runs(const MaskGeometry& geometry, const std::vector<float>& logits,
                                       float threshold) {
  const std::int32_t slot = 0;
  const MaskResizing resizing(geometry);
  OutlineJob job;
  job.logits = logits.data();
  job.slots = &slot;
  job.resizings = &resizing;
  job.masks = job.geometries = 1;
  job.logits_width = geometry.logits_width;
  job.logits_height = geometry.logits_height;
  job.widest = geometry.picture_width;
  job.threshold = threshold;
  std::vector<LogitSides> sides(static_cast<std::size_t>(job.words() * job.logits_width));
  std::vector<std::uint32_t> not_finite(static_cast<std::size_t>(job.words()));
  std::vector<RowRange> ranges(static_cast<std::size_t>(job.logits_height));
  job.sides = sides.data();
  job.not_finite = not_finite.data();
  job.ranges = ranges.data();
  outline_kernel::classify_all(job);
  std::vector<std::uint32_t> counts;
  std::uint32_t last = 0;
  outline_kernel::for_each_stretch(job, [&](const OutlineJob&, int n, int x, int s) {
    outline_kernel::walk(job, n, x, s, [&](std::uint32_t position) {
      counts.push_back(position - last);
      last = position;
    });
  });
  counts.push_back(
      static_cast<std::uint32_t>(geometry.picture_width) * static_cast<std::uint32_t>(geometry.picture_height) - last);
  return counts;
}

void check_against_reference(const MaskGeometry& geometry, const std::vector<float>& logits, float threshold = 0) {
  double largest = std::abs(threshold);
  for (const float v : logits) largest = std::max(largest, std::abs(static_cast<double>(v)));
  // float32 rounds a source coordinate near 1000 by 6e-5. The weight of a difference of 2 * largest has the same error.
  const int longest =
      std::max({geometry.logits_width, geometry.logits_height, geometry.crop_width, geometry.crop_height});
  const double tolerance = 1.3e-7 * longest * largest + 4e-7 * largest + 1e-44;
  MaskOutliner outliner(geometry);
  const auto counts = outliner.outline(logits, threshold);
  CHECK(wrong_pixels(counts, reference(logits, geometry), threshold, tolerance) == 0);
  CHECK(kernel_runs(geometry, logits, threshold) == counts);
}

std::string text(const MaskGeometry& g) {
  std::string all;
  for (const int side : {g.logits_width, g.logits_height, g.input_width, g.input_height, g.crop_width, g.crop_height,
                         g.picture_width, g.picture_height})
    all += std::to_string(side) + " ";
  return all;
}

}  // namespace

TEST_CASE("masks equal two bilinear resizings in double precision, for all sizes and patterns") {
  const std::vector<MaskGeometry> geometries{
      {256, 256, 1024, 1024, 1024, 576, 1920, 1080},
      {256, 256, 1024, 1024, 683, 1024, 500, 750},
      {256, 256, 1024, 1024, 1024, 1024, 1, 1},
      {256, 256, 1024, 1024, 1024, 1, 700, 1},
      {256, 256, 1024, 1024, 1, 1024, 1, 700},
      {256, 256, 1024, 1024, 1024, 768, 64, 48},
      {256, 256, 1024, 1024, 1024, 1024, 1024, 1024},
      {256, 256, 256, 256, 256, 256, 256, 256},
      {256, 256, 100, 90, 77, 90, 301, 207},
      {64, 48, 256, 192, 255, 191, 333, 777},
      {1, 1, 16, 16, 16, 16, 33, 5},
      {2, 3, 7, 5, 7, 4, 40, 30},
      {16, 16, 64, 64, 64, 36, 1, 999},
      {5, 5, 3, 3, 2, 3, 9, 11},
  };
  for (const MaskGeometry& geometry : geometries) {
    CAPTURE(text(geometry));
    unsigned seed = 1;
    for (const Pattern pattern : {Pattern::blobs, Pattern::noise, Pattern::ones, Pattern::minus_ones, Pattern::zeros,
                                  Pattern::stripes, Pattern::tiny, Pattern::one_pixel, Pattern::magnitudes}) {
      CAPTURE(static_cast<int>(pattern));
      check_against_reference(geometry, make_logits(geometry, pattern, seed++));
    }
  }
}

TEST_CASE("a picture of 8000 x 6000") {
  const MaskGeometry geometry{256, 256, 1024, 1024, 1024, 768, 8000, 6000};
  check_against_reference(geometry, make_logits(geometry, Pattern::blobs, 7));
}

TEST_CASE("random sizes, and a threshold other than zero") {
  std::mt19937 random(11);
  const auto side = [&](int limit) { return 1 + static_cast<int>(random() % static_cast<unsigned>(limit)); };
  for (int i = 0; i < 60; ++i) {
    MaskGeometry geometry{side(70), side(70), side(150), side(150), 0, 0, side(300), side(300)};
    geometry.crop_width = side(geometry.input_width);
    geometry.crop_height = side(geometry.input_height);
    CAPTURE(text(geometry));
    constexpr std::array patterns{Pattern::blobs, Pattern::noise, Pattern::magnitudes, Pattern::above};
    const Pattern pattern = patterns[static_cast<std::size_t>(i % 4)];
    const auto logits = make_logits(geometry, pattern, static_cast<unsigned>(i));
    check_against_reference(geometry, logits, pattern == Pattern::above ? limit : i % 3 == 0 ? 0.0F : 1.5F);
  }
}

TEST_CASE("one outliner serves many masks and keeps nothing of the previous one") {
  const MaskGeometry geometry{64, 64, 256, 256, 256, 144, 320, 180};
  MaskOutliner outliner(geometry);
  for (unsigned seed = 0; seed < 6; ++seed) {
    const auto logits = make_logits(geometry, seed % 2 == 0 ? Pattern::noise : Pattern::blobs, seed);
    CHECK(outliner.outline(logits) == MaskOutliner(geometry).outline(logits));
  }
}

TEST_CASE("a mask with all pixels inside is one run, and so is a mask with none") {
  MaskOutliner outliner({256, 256, 1024, 1024, 1024, 768, 640, 480});
  CHECK(outliner.outline(std::vector<float>(65536, 1.0F)) == std::vector<std::uint32_t>{0, 640 * 480});
  CHECK(outliner.outline(std::vector<float>(65536, -1.0F)) == std::vector<std::uint32_t>{640 * 480});
  CHECK(outliner.outline(std::vector<float>(65536, 0.0F)) == std::vector<std::uint32_t>{640 * 480});
}

TEST_CASE("logits that are NaN or infinite, and impossible sizes, are refused") {
  const MaskGeometry good{4, 4, 16, 16, 16, 9, 32, 18};
  MaskOutliner outliner(good);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t position : {0U, 7U, 15U}) {
      std::vector<float> logits(16, 1.0F);
      logits[position] = bad;
      CHECK_THROWS_AS(outliner.outline(logits), NonFinite);
    }
  }
  CHECK_THROWS_AS(outliner.outline(std::vector<float>(15)), std::invalid_argument);
  CHECK(outliner.outline(std::vector<float>(16, std::numeric_limits<float>::max())) ==
        std::vector<std::uint32_t>{0, 32 * 18});
  MaskGeometry bad = good;
  bad.crop_width = 17;
  CHECK_THROWS_AS(MaskOutliner{bad}, std::invalid_argument);
  bad = good;
  bad.picture_height = 0;
  CHECK_THROWS_AS(MaskOutliner{bad}, std::invalid_argument);
  bad = good;
  bad.picture_width = bad.picture_height = 70000;
  CHECK_THROWS_AS(MaskOutliner{bad}, std::invalid_argument);
}
