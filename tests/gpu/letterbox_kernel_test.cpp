#include "gpu/letterbox_kernel.hpp"

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "tests/gpu/input_specs.hpp"

using namespace millrace;

namespace {

std::vector<std::uint8_t> noise(int width, int height) {
  std::mt19937 random(static_cast<unsigned>(width * 31 + height));
  std::vector<std::uint8_t> pixels(3 * static_cast<std::size_t>(width) * static_cast<std::size_t>(height));
  for (auto& p : pixels) p = static_cast<std::uint8_t>(random());
  return pixels;
}

ResampleTaps taps(const ResampleTable& table) {
  return {table.first.data(), table.count.data(), table.weights.data(), table.taps};
}

}  // namespace

TEST_CASE("the letterbox kernel's arithmetic is that of its CPU twin, to the bit") {
  for (const InputSpec& spec : input_specs()) {
    for (const auto& [width, height] : {std::pair{1, 1},
                                        {2, 3},
                                        {64, 64},
                                        {128, 128},
                                        {128, 64},
                                        {64, 128},
                                        {63, 65},
                                        {192, 108},
                                        {108, 192},
                                        {1000, 5},
                                        {5, 1000},
                                        {333, 777},
                                        {640, 480},
                                        {129, 127},
                                        {64, 63}}) {
      CAPTURE(static_cast<int>(spec.mode));
      CAPTURE(static_cast<int>(spec.filter));
      CAPTURE(width);
      CAPTURE(height);
      const auto pixels = noise(width, height);
      for (const int reduced : {1, 2, 8}) {  // a raster of a picture so many times as large
        CAPTURE(reduced);
        const auto geometry = letterbox_geometry(reduced * width, reduced * height, spec);
        const std::size_t plane = static_cast<std::size_t>(spec.width) * static_cast<std::size_t>(spec.height);
        std::vector<float> twin(3 * plane);
        letterbox_cpu({pixels.data(), width, height}, geometry, spec, twin.data());

        const LetterboxTables tables = letterbox_tables(width, height, geometry, spec);
        LetterboxJob job = letterbox_job(width, height, geometry, spec);
        job.pixels = pixels.data();
        job.resampling = tables.resampling;
        job.x = taps(tables.x);
        job.y = taps(tables.y);
        int different = 0;
        for (int p = 0; p < 3; ++p) {
          for (int y = 0; y < spec.height; ++y) {
            for (int x = 0; x < spec.width; ++x) {
              const auto at = static_cast<std::size_t>(p) * plane + static_cast<std::size_t>(y * spec.width + x);
              different += static_cast<int>(letterbox_value(job, x, y, p) != twin[at]);
            }
          }
        }
        CHECK(different == 0);
      }
    }
  }
}
