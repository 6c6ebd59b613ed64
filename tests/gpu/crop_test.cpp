// Compares crops with references in double precision, and host with stream to the bit.
#include "gpu/crop.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/half.hpp"
#include "gpu/streams/simulated_stream.hpp"
#include "tests/gpu/input_specs.hpp"
#include "tests/gpu/on_device.hpp"
#include "tests/gpu/reference.hpp"

namespace millrace {
namespace {

/// A picture of noise with its reduction, a box in it, and the rectangle of pixels that the crop must take.
struct Row {
  int width, height, reduction;
  Box box;
  int x0, y0, x1, y1;
};

const std::vector<Row> table{
    {1, 1, 1, {0, 0, 1, 1}, 0, 0, 1, 1},
    {97, 61, 1, {0, 0, 97, 61}, 0, 0, 97, 61},                  // the whole picture
    {97, 61, 1, {-5, -1e9F, 300, 1e9F}, 0, 0, 97, 61},          // larger than the picture
    {97, 61, 1, {10.2F, 20.9F, 47.1F, 21.1F}, 10, 20, 48, 22},  // all pixels that are touched
    {97, 61, 1, {10, 20, 47, 21}, 10, 20, 47, 21},
    {97, 61, 1, {90.5F, 55.5F, 97, 61}, 90, 55, 97, 61},  // the bottom right corner
    {97, 61, 1, {33, 12, 33, 12}, 33, 12, 34, 13},        // no area
    {97, 61, 1, {50, 40, 20, 10}, 50, 40, 51, 41},        // corners swapped
    {97, 61, 1, {200, 300, 220, 310}, 96, 60, 97, 61},    // outside
    {128, 128, 1, {0, 0, 128, 128}, 0, 0, 128, 128},      // twice the input of 64 x 64
    {300, 5, 1, {3, 1, 299, 4}, 3, 1, 299, 4},
    {5, 300, 1, {1, 3, 4, 299}, 1, 3, 4, 299},
    {101, 77, 2, {0, 0, 101, 77}, 0, 0, 101, 77},
    {101, 77, 2, {11, 21, 60, 56}, 11, 21, 60, 56},
    {101, 77, 4, {97.5F, 70, 101, 77}, 97, 70, 101, 77},
    {99, 57, 8, {17, 9, 18, 10}, 17, 9, 18, 10},  // smaller than a pixel of the raster
};

struct Pictures {
  std::vector<std::vector<std::uint8_t>> pixels;  // of the rasters
  std::vector<Crop> crops;
};

Pictures pictures_on(Device& device) {
  Pictures all;
  for (const Row& row : table) {
    const int width = (row.width + row.reduction - 1) / row.reduction,
              height = (row.height + row.reduction - 1) / row.reduction;
    all.pixels.push_back(noise(width, height, static_cast<unsigned>(all.pixels.size())));
    const auto kept = std::make_shared<std::vector<std::uint8_t>>(all.pixels.back());
    all.crops.push_back(
        {device.upload({kept->data(), width, height}, kept), row.width, row.height, row.reduction, row.box});
  }
  return all;
}

Tensor cropped_on(Device& device, const InputSpec& spec, DType type) {
  const Pictures all = pictures_on(device);
  const Tensor inputs = device.empty({static_cast<std::int64_t>(all.crops.size()), 3, spec.height, spec.width}, type);
  crop(device, all.crops, spec, inputs);
  return inputs;  // frees the rasters: the crops are already queued
}

TEST_CASE("a crop takes the pixels that its box touches, and at least one") {
  for (const Row& row : table) {
    CAPTURE(&row - table.data());
    CHECK(crop_rectangle({{}, row.width, row.height, row.reduction, row.box}) ==
          PixelRectangle{row.x0, row.y0, row.x1 - row.x0, row.y1 - row.y0});
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(crop_rectangle({{}, 9, 9, 1, {nan, nan, nan, nan}}) == PixelRectangle{0, 0, 1, 1});
}

/// The largest difference of a row from the definition, in levels.
/// The definition gets only the crop's part of the raster.
double largest_difference(const Row& row, const std::vector<std::uint8_t>& pixels, const InputSpec& spec,
                          const float* values) {
  const int r = row.reduction, raster_width = (row.width + r - 1) / r;
  const int left = static_cast<int>(std::floor(1.0 * row.x0 / r)), top = static_cast<int>(std::floor(1.0 * row.y0 / r));
  const int width = static_cast<int>(std::ceil(1.0 * row.x1 / r)) - left,
            height = static_cast<int>(std::ceil(1.0 * row.y1 / r)) - top;
  std::vector<std::uint8_t> part;
  for (int y = top; y < top + height; ++y) {
    for (int i = 3 * left; i < 3 * (left + width); ++i)
      part.push_back(pixels[static_cast<std::size_t>(3 * y * raster_width + i)]);
  }
  const auto geometry = letterbox_geometry(row.x1 - row.x0, row.y1 - row.y0, spec);
  double worst = 0;
  for (int plane = 0; plane < 3; ++plane) {
    const auto p = static_cast<std::size_t>(plane);
    for (int y = 0; y < spec.height; ++y) {
      for (int x = 0; x < spec.width; ++x) {
        const double got = (double{*values++} * double{spec.std[p]} + double{spec.mean[p]}) / double{spec.scale};
        worst = std::max(worst,
                         std::abs(got - reference::level({part.data(), width, height}, geometry, spec, x, y, plane)));
      }
    }
  }
  return worst;
}

TEST_CASE("crops of host and stream equal the definition, and have the same bits") {
  for (const InputSpec& spec : input_specs()) {
    CAPTURE(static_cast<int>(spec.mode));
    CAPTURE(static_cast<int>(spec.filter));
    HostAndDevice both;
    const auto host = values_of<float>(both.host, cropped_on(both.host, spec, DType::f32)),
               device = values_of<float>(both.device, cropped_on(both.device, spec, DType::f32));
    REQUIRE(host.size() == device.size());
    CHECK(std::memcmp(host.data(), device.data(), host.size() * sizeof(float)) == 0);
    const std::size_t size = host.size() / table.size();
    const Pictures all = pictures_on(both.host);
    for (std::size_t i = 0; i < table.size(); ++i) {
      CAPTURE(i);
      // Each pass of the triangle rounds by half a level. cv2 works with 11 fraction bits.
      CHECK(largest_difference(table[i], all.pixels[i], spec, host.data() + i * size) <= 1.01);
    }
  }
}

TEST_CASE("a crop of the whole picture equals its letterbox") {
  HostAndDevice both;
  for (const InputSpec& spec : input_specs()) {
    const auto pixels = std::make_shared<std::vector<std::uint8_t>>(noise(97, 61, 3));
    const DeviceImage raster = both.device.upload({pixels->data(), 97, 61}, pixels);
    const Tensor inputs = both.device.empty({1, 3, spec.height, spec.width}),
                 expected = both.device.empty({3, spec.height, spec.width});
    crop(both.device, std::vector<Crop>{{raster, 97, 61, 1, {0, 0, 97, 61}}}, spec, inputs);
    letterbox(both.device, {letterbox_row(raster, letterbox_geometry(97, 61, spec), spec, expected)});
    CHECK(values_of<float>(both.device, inputs) == values_of<float>(both.device, expected));
  }
}

TEST_CASE("crops in 16 bits are the values in float32, rounded to nearest") {
  const InputSpec spec = input_specs()[2];
  HostAndDevice both;
  const auto wide = values_of<float>(both.host, cropped_on(both.host, spec, DType::f32));
  for (const auto& [type, rounded] : {std::pair{DType::bf16, &to_bf16}, {DType::f16, &to_f16}}) {
    std::vector<std::uint16_t> nearest(wide.size());
    std::transform(wide.begin(), wide.end(), nearest.begin(), rounded);
    for (Device* device : {&both.host, &both.device})
      CHECK(values_of<std::uint16_t>(*device, cropped_on(*device, spec, type)) == nearest);
  }
}

TEST_CASE("impossible crops are refused, and no crops are no error") {
  HostAndDevice both;
  InputSpec spec;
  spec.width = spec.height = 8;
  const auto pixels = noise(4, 4, 1);
  for (Device* device : {&both.host, &both.device}) {
    const std::vector<Crop> one{{device->upload({pixels.data(), 4, 4}, nullptr), 4, 4, 1, {0, 0, 4, 4}}};
    CHECK_THROWS_AS(crop(*device, one, spec, device->empty({2, 3, 8, 8})), std::invalid_argument);
    CHECK_THROWS_AS(crop(*device, one, spec, device->empty({3, 8, 8})), std::invalid_argument);
    CHECK_THROWS_AS(crop(*device, one, spec, device->empty({1, 3, 8, 8}, DType::u8)), std::invalid_argument);
    CHECK_NOTHROW(crop(*device, {}, spec, device->empty({0, 3, 8, 8})));
    device->wait();
  }
}

TEST_CASE("every simulated crop counts its own time") {
  const auto gpu = std::make_shared<SimulatedGpu>(SimulatedRates{1e12, 1e12, {{"letterbox", 1e-6}}});
  Device device(std::make_unique<SimulatedStream>(gpu));
  cropped_on(device, input_specs()[0], DType::f32);
  CHECK(gpu->busy_ns() == static_cast<std::int64_t>(1000 * table.size()));
}

}  // namespace
}  // namespace millrace
