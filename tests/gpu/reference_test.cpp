// Compares host and stream with references in double precision, which share no code with them.
#include "tests/gpu/reference.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <random>
#include <utility>

#include "gpu/device.hpp"
#include "gpu/ops/letterbox.hpp"
#include "tests/gpu/input_specs.hpp"
#include "tests/gpu/on_device.hpp"
#include "tests/gpu/streams/make_stream.hpp"

namespace millrace {
namespace {

std::vector<std::unique_ptr<Device>> both_devices() {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::make_unique<Device>());
  devices.push_back(std::make_unique<Device>(make_stream()));
  return devices;
}

/// The largest difference of an input from the reference, in levels.
double largest_difference(Device& device, const Image8& raster, const std::shared_ptr<const void>& keep,
                          const LetterboxGeometry& geometry, const InputSpec& spec) {
  const Tensor input = device.empty({3, spec.height, spec.width}, DType::f32);
  letterbox(device, {letterbox_row(device.upload(raster, keep), geometry, spec, input)});
  device.wait();
  const auto values = values_of<float>(device, input);
  double worst = 0;
  std::size_t at = 0;
  for (int plane = 0; plane < 3; ++plane) {
    const auto p = static_cast<std::size_t>(plane);
    for (int y = 0; y < spec.height; ++y) {
      for (int x = 0; x < spec.width; ++x) {
        const double got = (double{values[at++]} * double{spec.std[p]} + double{spec.mean[p]}) / double{spec.scale};
        worst = std::max(worst, std::abs(got - reference::level(raster, geometry, spec, x, y, plane)));
      }
    }
  }
  return worst;
}

TEST_CASE("letterboxes of host and stream equal a reference in double precision, at full and at reduced size") {
  const auto devices = both_devices();
  for (const InputSpec& spec : input_specs()) {
    for (const auto& [width, height] : {std::pair{1, 1},
                                        {2, 3},
                                        {64, 64},
                                        {128, 128},
                                        {128, 64},
                                        {192, 108},
                                        {1000, 5},
                                        {5, 1000},
                                        {333, 77},
                                        {63, 65}}) {
      for (const int reduced : {1, 4}) {
        CAPTURE(static_cast<int>(spec.mode));
        CAPTURE(static_cast<int>(spec.filter));
        CAPTURE(width);
        CAPTURE(height);
        CAPTURE(reduced);
        const auto pixels = std::make_shared<std::vector<std::uint8_t>>(noise(width, height, 7));
        const auto geometry = letterbox_geometry(reduced * width, reduced * height, spec);
        for (const auto& device : devices) {
          // Each pass of the triangle rounds by half a level. cv2 works with 11 fraction bits.
          CHECK(largest_difference(*device, {pixels->data(), width, height}, pixels, geometry, spec) <= 1.01);
        }
      }
    }
  }
}

struct Shape {
  HeadLayout layout;
  int slots, classes, width, height, boxes, objects;
};

std::vector<std::int64_t> output_shape(const Shape& s) {
  if (s.layout == HeadLayout::v8) return {s.slots, 4 + s.classes, s.boxes};
  return {s.slots, s.boxes, 6};
}

/// Floats represent the corners exactly, so equal boxes are equal in any precision.
std::vector<float> output_of(const Shape& s, unsigned seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
  const auto whole = [&](int limit) { return static_cast<float>(draw(limit)); };
  const bool v8 = s.layout == HeadLayout::v8;
  const auto shape = output_shape(s);
  const int rows = static_cast<int>(shape[1]), columns = static_cast<int>(shape[2]);
  std::vector<float> output(static_cast<std::size_t>(s.slots * rows * columns));
  for (int slot = 0; slot < s.slots; ++slot) {
    const auto at = [&](int channel, int box) -> float& {
      const int row = v8 ? channel : box, column = v8 ? box : channel;
      return output[static_cast<std::size_t>((slot * rows + row) * columns + column)];
    };
    for (int i = 0; i < s.boxes; ++i) {
      at(0, i) = whole(s.width), at(1, i) = whole(s.height);
      // Some sides are 0 or negative, which a model without training can return.
      at(2, i) = v8 ? 1 + whole(60) : at(0, i) - 3 + whole(60);
      at(3, i) = v8 ? 1 + whole(60) : at(1, i) - 3 + whole(60);
    }
    for (int object = 0; object < s.objects; ++object) {
      const int i = draw(s.boxes);
      const float score = whole(65) / 64;
      if (v8) {
        at(0, i) = static_cast<float>(object % 5) * 20, at(1, i) = static_cast<float>(object % 3) * 25;
        at(4 + draw(s.classes), i) = score;
      } else {
        at(4, i) = score, at(5, i) = whole(s.classes);
      }
    }
  }
  return output;
}

TEST_CASE("boxes of host and stream equal a reference in double precision") {
  unsigned seed = 0;
  int compared = 0, near = 0, boxes = 0;
  for (const Shape& s :
       {Shape{HeadLayout::v8, 1, 1, 32, 32, 21, 5}, Shape{HeadLayout::v8, 3, 6, 416, 416, 3549, 200},
        Shape{HeadLayout::v8, 2, 80, 640, 384, 5040, 3000}, Shape{HeadLayout::v8, 2, 3, 96, 64, 126, 0},
        Shape{HeadLayout::end_to_end, 2, 80, 416, 416, 300, 300}, Shape{HeadLayout::end_to_end, 1, 1, 64, 32, 1, 1},
        Shape{HeadLayout::end_to_end, 5, 3, 96, 64, 120, 60}}) {
    for (const bool class_aware : {true, false}) {
      for (const int max_rows : {1, 8, 101}) {
        BoxSearch search;
        search.head = {s.layout, s.boxes, s.classes};
        search.min_score = 0.2F;
        search.iou_threshold = s.layout == HeadLayout::v8 ? 0.4493 : 1;
        search.min_area = max_rows == 8 ? 401 : 0;
        search.class_aware = class_aware;
        search.max_boxes = max_rows;
        if (max_rows == 101) {
          search.wanted.assign(static_cast<std::size_t>(s.classes), 1);
          search.wanted.back() = s.classes == 1;
        }
        InputSpec spec;
        spec.width = s.width, spec.height = s.height, spec.placement = Placement::centred;
        const auto output = output_of(s, ++seed);
        const auto shape = output_shape(s);
        const auto slots = static_cast<std::size_t>(s.slots);
        std::vector<LetterboxGeometry> geometry;
        for (int slot = 0; slot < s.slots; ++slot) geometry.push_back(letterbox_geometry(1000 + 300 * slot, 700, spec));
        for (const auto& device : both_devices()) {
          const auto found = std::make_shared<std::vector<FoundBoxes>>(slots);
          std::vector<BoxTarget> targets;
          for (std::size_t i = 0; i < slots; ++i)
            targets.push_back({static_cast<int>(i), geometry[i], {found, &(*found)[i]}});
          find_boxes(*device, on(*device, output, shape), search, targets);
          device->wait();
          for (std::size_t i = 0; i < slots; ++i) {
            CAPTURE(s.classes);
            CAPTURE(s.width);
            CAPTURE(class_aware);
            CAPTURE(max_rows);
            CAPTURE(i);
            reference::Search expecting(search, geometry[i]);
            const auto size = static_cast<std::size_t>(shape[1] * shape[2]);
            const auto expected = expecting.run(std::span(output).subspan(i * size, size));
            if (expecting.margin < 1e-5) {  // floats may decide otherwise
              ++near;
              continue;
            }
            ++compared;
            const FoundBoxes& got = (*found)[i];
            CHECK(got.more == expecting.more);
            CHECK(got.fault.empty());
            REQUIRE(got.boxes.size() == expected.size());
            double worst = 0;
            int wrong = 0;
            for (std::size_t k = 0; k < expected.size(); ++k) {
              const reference::Found& e = expected[k];
              worst = std::max({worst, std::abs(got.boxes[k].x0 - e.x0), std::abs(got.boxes[k].y0 - e.y0),
                                std::abs(got.boxes[k].x1 - e.x1), std::abs(got.boxes[k].y1 - e.y1)});
              wrong += static_cast<int>(got.classes[k] != e.class_id || double{got.scores[k]} != e.score);
              ++boxes;
            }
            CHECK(worst < 1e-2);  // in pixels; pictures are up to 2,200 pixels wide
            CHECK(wrong == 0);
          }
        }
      }
    }
  }
  CHECK(compared > 10 * near);
  CHECK(boxes > 1000);
}

}  // namespace
}  // namespace millrace
