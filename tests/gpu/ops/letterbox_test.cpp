#include "gpu/ops/letterbox.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/half.hpp"
#include "tests/gpu/input_specs.hpp"
#include "tests/gpu/on_device.hpp"

namespace millrace {
namespace {

DeviceImage image_of(const std::uint8_t* pixels, int width, int height) {
  return Device().upload({pixels, width, height}, nullptr);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// The threads of a block, the last one first in each phase. So a phase that reads what another thread writes in it
/// has other results with this block or with HostBlock.
struct BackwardBlock : letterbox_kernel::HostBlock {
  template <class Phase>
  void all(const Phase& phase) {
    std::for_each(threads.rbegin(), threads.rend(), phase);
  }
};

/// A part of a wider picture of noise.
struct Part {
  int width, height, row_pixels;
  std::vector<std::uint8_t> wide, packed;  // the part begins at column 2 of row 1 of `wide`
  const std::uint8_t* first;

  Part(int part_width, int part_height) : width(part_width), height(part_height), row_pixels(part_width + 5) {
    wide = noise(row_pixels, height + 2, static_cast<unsigned>(width * 31 + height));
    first = wide.data() + 3 * (row_pixels + 2);
    for (int y = 0; y < height; ++y)
      packed.insert(packed.end(), first + 3 * y * row_pixels, first + 3 * (y * row_pixels + width));
  }
};

/// Some are reduced so far that a block does not keep all weights. For some, the first pass is along y.
const std::vector<std::pair<int, int>> shapes{{1, 1},     {2, 3},     {64, 64},   {128, 128}, {128, 64}, {64, 128},
                                              {63, 65},   {192, 108}, {108, 192}, {1000, 5},  {5, 1000}, {333, 777},
                                              {640, 480}, {129, 127}, {64, 63},   {70, 700},  {3, 2600}, {2600, 3},
                                              {1, 7000},  {7000, 2},  {1500, 110}};

TEST_CASE("the letterbox kernel computes the same bits as letterbox_cpu") {
  std::vector<InputSpec> specs = input_specs();
  specs.push_back(specs[3]);  // triangle, stretched
  specs.back().bgr = true;
  int rows_first = 0, most_taps = 0;
  for (const InputSpec& spec : specs) {
    for (const auto& [width, height] : shapes) {
      CAPTURE(static_cast<int>(spec.mode));
      CAPTURE(static_cast<int>(spec.filter));
      CAPTURE(width);
      CAPTURE(height);
      const Part part(width, height);
      for (const int reduced : {1, 2, 8}) {  // how many times larger the picture is than its raster
        CAPTURE(reduced);
        const auto geometry = letterbox_geometry(reduced * width, reduced * height, spec);
        const std::size_t plane = static_cast<std::size_t>(spec.width) * static_cast<std::size_t>(spec.height);
        std::vector<float> twin(3 * plane);
        letterbox_cpu({part.packed.data(), width, height}, geometry, spec, twin.data());

        std::vector<float> body(3 * plane);
        Tensor input{nullptr, body.data(), {3, spec.height, spec.width}};
        LetterboxRow row = letterbox_row(image_of(part.first, width, height), geometry, spec, input);
        row.row_pixels = part.row_pixels;
        letterbox_body(row);
        CHECK(same_bits(body, twin));
        std::ranges::fill(body, -1.0F);
        letterbox_kernel::fill_input<BackwardBlock>(row);
        CHECK(same_bits(body, twin));
        if (spec.filter == ResizeFilter::pil_bilinear_antialias) {
          rows_first += static_cast<int>(row.resampling == Resampling::triangle_y_then_x);
          most_taps = std::max({most_taps, maximum_triangle_taps(width, geometry.resized_width),
                                maximum_triangle_taps(height, geometry.resized_height)});
        }

        if (reduced > 1) continue;  // the type changes only the last step
        for (const DType type : {DType::f16, DType::bf16}) {
          row.type = type;
          for (void (*const fill)(const LetterboxRow&) : {letterbox_body, letterbox_on_host}) {
            std::vector<std::uint16_t> halves(3 * plane);
            row.out = halves.data();
            fill(row);
            const auto wrong =
                std::mismatch(halves.begin(), halves.end(), twin.begin(), [&](std::uint16_t bits, float value) {
                  return bits == (type == DType::f16 ? to_f16(value) : to_bf16(value));
                });
            CHECK(wrong.first == halves.end());
          }
        }
      }
    }
  }
  CHECK(rows_first > 10);
  CHECK(most_taps > 2 * letterbox_kernel::kept_weights);
}

TEST_CASE("one upload serves both inputs, and keeps the raster until it is done") {
  InputSpec detector, segmenter;
  detector.width = 64, detector.height = 48, detector.placement = Placement::centred;
  detector.rounding = SideRounding::half_even;
  segmenter.width = segmenter.height = 72, segmenter.mode = ResizeMode::longest_side;
  segmenter.filter = ResizeFilter::pil_bilinear_antialias;
  segmenter.mean = {123.5F, 116, 103}, segmenter.std = {58, 57, 57.5F};
  HostAndDevice both;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 40; ++i) {
      const int width = 1 + 7 * i, height = 200 - 4 * i;
      CAPTURE(width);
      const auto pixels = std::make_shared<std::vector<std::uint8_t>>(noise(width, height, static_cast<unsigned>(i)));
      std::weak_ptr<std::vector<std::uint8_t>> held = pixels;
      const Image8 raster{pixels->data(), width, height};
      auto keep = pixels;
      std::vector<Tensor> inputs;
      const DeviceImage uploaded = both.device.upload(raster, std::move(keep));
      for (const InputSpec& spec : {detector, segmenter}) {
        inputs.push_back(both.device.empty({3, spec.height, spec.width}, DType::f32));
        letterbox(both.device, {letterbox_row(uploaded, letterbox_geometry(width, height, spec), spec, inputs.back())});
      }
      both.device.wait();
      CHECK(held.use_count() == 1);  // only the test's own reference
      for (std::size_t k = 0; k < 2; ++k) {
        const InputSpec& spec = k == 0 ? detector : segmenter;
        const Tensor expected = both.host.empty({3, spec.height, spec.width}, DType::f32);
        letterbox(both.host, {letterbox_row(both.host.upload(raster, nullptr), letterbox_geometry(width, height, spec),
                                            spec, expected)});
        CHECK(same_bits(values_of<float>(both.device, inputs[k]), values_of<float>(both.host, expected)));
      }
    }
  }
  CHECK(both.device.counts().uploads == 80);
  CHECK(both.device.counts().waits == 80);
  CHECK(both.device.counts().downloads == 0);
}

TEST_CASE("letterboxes of reduced rasters equal the host's") {
  InputSpec linear, triangle;
  linear.width = 64, linear.height = 48, linear.placement = Placement::centred;
  linear.rounding = SideRounding::half_even;
  triangle.width = triangle.height = 72, triangle.mode = ResizeMode::longest_side;
  triangle.filter = ResizeFilter::pil_bilinear_antialias;
  HostAndDevice both;
  for (const auto& [width, height] : {std::pair{1, 1}, {32, 24}, {128, 96}, {75, 50}, {33, 200}}) {
    const auto pixels = std::make_shared<std::vector<std::uint8_t>>(noise(width, height, 5));
    const Image8 raster{pixels->data(), width, height};
    const DeviceImage uploaded = both.device.upload(raster, pixels);
    for (const auto& [picture_width, picture_height] :
         {std::pair{2 * width, 2 * height}, {4 * width - 3, 4 * height - 1}, {8 * width - 7, 8 * height}}) {
      for (const InputSpec& spec : {linear, triangle}) {
        CAPTURE(picture_width);
        CAPTURE(picture_height);
        const auto geometry = letterbox_geometry(picture_width, picture_height, spec);
        const Tensor input = both.device.empty({3, spec.height, spec.width}, DType::f32),
                     expected = both.host.empty({3, spec.height, spec.width}, DType::f32);
        letterbox(both.device, {letterbox_row(uploaded, geometry, spec, input)});
        letterbox(both.host, {letterbox_row(both.host.upload(raster, nullptr), geometry, spec, expected)});
        CHECK(same_bits(values_of<float>(both.device, input), values_of<float>(both.host, expected)));
      }
    }
    both.device.wait();
  }
}

TEST_CASE("inputs in 16 bits are the host's values, rounded to nearest") {
  InputSpec spec;
  spec.width = 64, spec.height = 48;
  spec.mean = {123.5F, 116, 103}, spec.std = {58, 57, 57.5F};
  HostAndDevice both;
  for (const ResizeFilter filter : {ResizeFilter::cv2_linear, ResizeFilter::pil_bilinear_antialias}) {
    spec.filter = filter;
    for (const auto& [width, height] : {std::pair{1, 1}, {7, 90}, {64, 48}, {201, 130}, {1920, 1080}, {40, 1700}}) {
      CAPTURE(width);
      const auto pixels = std::make_shared<std::vector<std::uint8_t>>(noise(width, height, 5));
      const Image8 raster{pixels->data(), width, height};
      const auto geometry = letterbox_geometry(width, height, spec);
      const Tensor wide = both.host.empty({3, spec.height, spec.width}, DType::f32);
      letterbox(both.host, {letterbox_row(both.host.upload(raster, nullptr), geometry, spec, wide)});
      const auto expected = values_of<float>(both.host, wide);
      const DeviceImage uploaded = both.device.upload(raster, pixels);
      for (const auto& [type, rounded] : {std::pair{DType::bf16, &to_bf16}, {DType::f16, &to_f16}}) {
        const Tensor input = both.device.empty({3, spec.height, spec.width}, type);
        letterbox(both.device, {letterbox_row(uploaded, geometry, spec, input)});
        std::vector<std::uint16_t> nearest(expected.size());
        std::transform(expected.begin(), expected.end(), nearest.begin(), rounded);
        CHECK(values_of<std::uint16_t>(both.device, input) == nearest);
      }
      both.device.wait();
    }
  }
}

TEST_CASE("one launch fills the inputs of pictures of different sizes") {
  InputSpec spec;
  spec.width = 64, spec.height = 48, spec.placement = Placement::centred;
  HostAndDevice both;
  const std::vector<std::pair<int, int>> sizes{{1, 1}, {64, 48}, {128, 96}, {33, 200}, {1920, 1080}};
  std::vector<std::vector<float>> expected;
  const Tensor inputs = both.device.empty({static_cast<std::int64_t>(sizes.size()), 3, spec.height, spec.width});
  std::vector<LetterboxRow> rows;
  std::vector<DeviceImage> uploads;
  for (const auto& [width, height] : sizes) {
    const auto pixels = std::make_shared<std::vector<std::uint8_t>>(noise(width, height, 5));
    const auto geometry = letterbox_geometry(width, height, spec);
    const Tensor one = both.host.empty({3, spec.height, spec.width});
    letterbox(both.host,
              {letterbox_row(both.host.upload({pixels->data(), width, height}, nullptr), geometry, spec, one)});
    expected.push_back(values_of<float>(both.host, one));
    uploads.push_back(both.device.upload({pixels->data(), width, height}, pixels));
    rows.push_back(letterbox_row(uploads.back(), geometry, spec, inputs.row(static_cast<std::int64_t>(rows.size()))));
  }
  letterbox(both.device, rows);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    CAPTURE(i);
    CHECK(same_bits(values_of<float>(both.device, inputs.row(static_cast<std::int64_t>(i))), expected[i]));
  }
}

TEST_CASE("impossible letterboxes are refused, and none is no error") {
  HostAndDevice both;
  InputSpec spec, larger;
  spec.width = spec.height = 8;
  larger.width = larger.height = 16;
  const auto pixels = noise(4, 4, 1);
  for (Device* device : {&both.host, &both.device}) {
    const DeviceImage raster = device->upload({pixels.data(), 4, 4}, nullptr);
    const auto row = [&](const InputSpec& of, DType type) {
      return letterbox_row(raster, letterbox_geometry(4, 4, of), of, device->empty({3, of.height, of.width}, type));
    };
    CHECK_THROWS_AS(letterbox(*device, {row(spec, DType::u8)}), std::invalid_argument);
    CHECK_THROWS_AS(letterbox(*device, {row(spec, DType::f32), row(spec, DType::f16)}), std::invalid_argument);
    CHECK_THROWS_AS(letterbox(*device, {row(spec, DType::f32), row(larger, DType::f32)}), std::invalid_argument);
    CHECK_NOTHROW(letterbox(*device, {}));
    device->wait();
  }
}

}  // namespace
}  // namespace millrace
