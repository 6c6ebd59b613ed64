// A device on a stream does what the host does, to the bit, and not before it is waited for.
#include "gpu/stream_device.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "base/half.hpp"
#include "gpu/finite.hpp"
#include "gpu/host_device.hpp"
#include "tests/gpu/on_device.hpp"
#include "tests/gpu/streams/make_stream.hpp"

namespace millrace {
namespace {

struct Both {
  HostDevice host;
  StreamDevice device{make_stream()};
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_CASE("one upload makes both inputs, for more sizes than tables are kept") {
  InputSpec detector, segmenter;
  detector.width = 64, detector.height = 48, detector.placement = Placement::centred;
  detector.rounding = SideRounding::half_even;
  segmenter.width = segmenter.height = 72, segmenter.mode = ResizeMode::longest_side;
  segmenter.filter = ResizeFilter::pil_bilinear_antialias;
  segmenter.mean = {123.5F, 116, 103}, segmenter.std = {58, 57, 57.5F};
  Both both;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 40; ++i) {
      const int width = 1 + 7 * i, height = 200 - 4 * i;
      CAPTURE(width);
      const auto pixels = std::make_shared<std::vector<std::uint8_t>>(noise(width, height, static_cast<unsigned>(i)));
      std::weak_ptr<std::vector<std::uint8_t>> held = pixels;
      const Image8 raster{pixels->data(), width, height};
      auto keep = pixels;
      std::vector<Tensor> inputs;
      const Image8 uploaded = both.device.upload(raster, std::move(keep));
      for (const InputSpec& spec : {detector, segmenter}) {
        inputs.push_back(both.device.empty({3, spec.height, spec.width}, DType::f32));
        both.device.letterbox(uploaded, letterbox_geometry(width, height, spec), spec, inputs.back());
      }
      both.device.wait();
      CHECK(held.use_count() == 1);  // ours
      for (std::size_t k = 0; k < 2; ++k) {
        const InputSpec& spec = k == 0 ? detector : segmenter;
        const Tensor expected = both.host.empty({3, spec.height, spec.width}, DType::f32);
        both.host.letterbox(raster, letterbox_geometry(width, height, spec), spec, expected);
        CHECK(same_bits(values_of<float>(both.device, inputs[k]), values_of<float>(both.host, expected)));
      }
    }
  }
  CHECK(both.device.counts().uploads == 80);
  CHECK(both.device.counts().waits == 80);
  CHECK(both.device.counts().downloads == 0);
}

TEST_CASE("a raster that was reduced goes where its picture goes") {
  InputSpec linear, triangle;
  linear.width = 64, linear.height = 48, linear.placement = Placement::centred;
  linear.rounding = SideRounding::half_even;
  triangle.width = triangle.height = 72, triangle.mode = ResizeMode::longest_side;
  triangle.filter = ResizeFilter::pil_bilinear_antialias;
  Both both;
  for (const auto& [width, height] : {std::pair{1, 1}, {32, 24}, {128, 96}, {75, 50}, {33, 200}}) {
    const auto pixels = std::make_shared<std::vector<std::uint8_t>>(noise(width, height, 5));
    const Image8 raster{pixels->data(), width, height};
    const Image8 uploaded = both.device.upload(raster, pixels);
    for (const auto& [picture_width, picture_height] :
         {std::pair{2 * width, 2 * height}, {4 * width - 3, 4 * height - 1}, {8 * width - 7, 8 * height}}) {
      for (const InputSpec& spec : {linear, triangle}) {
        CAPTURE(picture_width);
        CAPTURE(picture_height);
        const auto geometry = letterbox_geometry(picture_width, picture_height, spec);
        const Tensor input = both.device.empty({3, spec.height, spec.width}, DType::f32),
                     expected = both.host.empty({3, spec.height, spec.width}, DType::f32);
        both.device.letterbox(uploaded, geometry, spec, input);
        both.host.letterbox(raster, geometry, spec, expected);
        CHECK(same_bits(values_of<float>(both.device, input), values_of<float>(both.host, expected)));
      }
    }
    both.device.wait();
  }
}

TEST_CASE("inputs in 16 bits are those of the host, rounded to the nearest") {
  InputSpec spec;
  spec.width = 64, spec.height = 48;
  spec.mean = {123.5F, 116, 103}, spec.std = {58, 57, 57.5F};
  Both both;
  for (const auto& [width, height] : {std::pair{1, 1}, {7, 90}, {64, 48}, {201, 130}, {1920, 1080}}) {
    CAPTURE(width);
    const auto pixels = std::make_shared<std::vector<std::uint8_t>>(noise(width, height, 5));
    const Image8 raster{pixels->data(), width, height};
    const auto geometry = letterbox_geometry(width, height, spec);
    const Tensor wide = both.host.empty({3, spec.height, spec.width}, DType::f32);
    both.host.letterbox(raster, geometry, spec, wide);
    const auto expected = values_of<float>(both.host, wide);
    const Image8 uploaded = both.device.upload(raster, pixels);
    for (const auto& [type, rounded] : {std::pair{DType::bf16, &to_bf16}, {DType::f16, &to_f16}}) {
      const Tensor input = both.device.empty({3, spec.height, spec.width}, type);
      both.device.letterbox(uploaded, geometry, spec, input);
      std::vector<std::uint16_t> nearest(expected.size());
      std::transform(expected.begin(), expected.end(), nearest.begin(), rounded);
      CHECK(values_of<std::uint16_t>(both.device, input) == nearest);
    }
    both.device.wait();
  }
}

/// v8 outputs of three classes with clusters of boxes.
std::vector<float> detector_output(int slots, int anchors, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> values(static_cast<std::size_t>(slots * 7 * anchors));
  for (int s = 0; s < slots; ++s) {
    for (int a = 0; a < anchors; ++a) {
      const auto at = [&](int channel) -> float& {
        return values[static_cast<std::size_t>((s * 7 + channel) * anchors + a)];
      };
      at(0) = 10 * std::floor(uniform(random) * 6);
      at(1) = 10 * std::floor(uniform(random) * 6);
      at(2) = 5 + 30 * uniform(random);
      at(3) = 5 + 30 * uniform(random);
      for (int c = 0; c < 3; ++c) at(4 + c) = uniform(random) < 0.3F ? uniform(random) : 0.01F;
    }
  }
  return values;
}

std::vector<FoundBoxes> found_on(Device& device, const std::vector<float>& values, int slots, int anchors,
                                 const BoxSearch& search, const std::vector<int>& rows) {
  const auto found = std::make_shared<std::vector<FoundBoxes>>(rows.size());
  InputSpec spec;
  spec.width = spec.height = 64;
  std::vector<BoxTarget> targets;
  for (std::size_t i = 0; i < rows.size(); ++i)
    targets.push_back({rows[i], letterbox_geometry(100 + 10 * rows[i], 90, spec), {found, &(*found)[i]}});
  device.find_boxes(on(device, values, {slots, 7, anchors}), search, targets);
  device.wait();
  return *found;
}

TEST_CASE("boxes are those of the host, best first, with their faults") {
  BoxSearch search;
  search.head = {HeadLayout::v8, 64, 64, 3};
  for (unsigned seed = 0; seed < 60; ++seed) {
    const int slots = 1 + static_cast<int>(seed % 40), anchors = 1 + static_cast<int>(seed * 7 % 90);
    CAPTURE(slots);
    CAPTURE(anchors);
    auto values = detector_output(slots, anchors, seed);
    search.most_boxes = seed % 3 == 0 ? 2 : 100;
    search.class_aware = seed % 2 == 0;
    search.least_area = seed % 5 == 0 ? 400 : 0;
    search.wanted = seed % 4 == 0 ? std::vector<std::uint8_t>{1, 0, 1} : std::vector<std::uint8_t>{};
    if (seed % 6 == 1) values[static_cast<std::size_t>(4 * anchors)] = std::numeric_limits<float>::quiet_NaN();
    if (seed % 6 == 2) values[0] = std::numeric_limits<float>::infinity();
    std::vector<int> rows;
    for (int row = slots - 1; row >= 0; row -= 1 + static_cast<int>(seed % 2)) rows.push_back(row);
    Both both;
    const auto expected = found_on(both.host, values, slots, anchors, search, rows);
    const auto got = found_on(both.device, values, slots, anchors, search, rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      CHECK(got[i].boxes == expected[i].boxes);
      CHECK(got[i].scores == expected[i].scores);
      CHECK(got[i].classes == expected[i].classes);
      CHECK(got[i].more == expected[i].more);
      CHECK(got[i].fault == expected[i].fault);
    }
  }
}

TEST_CASE("an output of another shape is refused at once, on both") {
  Both both;
  BoxSearch search;
  search.head = {HeadLayout::v8, 64, 64, 80};
  const std::vector<float> values(7 * 4);
  for (Device* device : {static_cast<Device*>(&both.host), static_cast<Device*>(&both.device)}) {
    const std::vector<BoxTarget> targets{{0, {}, std::make_shared<FoundBoxes>()}};
    CHECK_THROWS_AS(device->find_boxes(on(*device, values, {1, 7, 4}), search, targets), std::invalid_argument);
  }
}

/// Smooth blobs, and where asked for noise, which has an outline at every pixel.
std::vector<float> decoder_output(int masks, int side, bool rough, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 5);
  std::vector<float> values;
  for (int n = 0; n < masks; ++n) {
    const float cx = static_cast<float>(random() % static_cast<unsigned>(side)), cy = static_cast<float>(side) / 2;
    for (int y = 0; y < side; ++y) {
      for (int x = 0; x < side; ++x) {
        const float dx = static_cast<float>(x) - cx, dy = static_cast<float>(y) - cy;
        values.push_back(rough ? normal(random) : 20 - dx * dx - dy * dy / 2);
      }
    }
  }
  return values;
}

struct Call {
  int masks, side;
  bool rough;
  std::vector<int> rows;
};

std::vector<TracedMask> traced_on(Device& device, const std::vector<Call>& calls, unsigned seed) {
  const auto traced = std::make_shared<std::vector<TracedMask>>();
  std::size_t total = 0;
  for (const Call& call : calls) total += call.rows.size();
  traced->resize(total);
  std::size_t next = 0;
  std::vector<MaskCall> outputs;
  for (const Call& call : calls) {
    auto logits = decoder_output(call.masks, call.side, call.rough, ++seed);
    std::vector<float> ious;
    for (int n = 0; n < call.masks; ++n) ious.push_back(0.5F + static_cast<float>(n) / 100);
    if (seed % 5 == 0) logits[3] = std::numeric_limits<float>::infinity();
    if (seed % 5 == 1) ious.back() = std::numeric_limits<float>::quiet_NaN();
    std::vector<MaskTarget> targets;
    for (const int row : call.rows) {
      const int width = (call.rough ? 300 : 60) + 25 * (row / 2),
                height = 90 - 10 * (row / 2);  // two objects a picture
      targets.push_back(
          {row,
           {call.side, call.side, 4 * call.side, 4 * call.side, 4 * call.side, 3 * call.side, width, height},
           {traced, &(*traced)[next++]}});
    }
    outputs.push_back(
        {on(device, logits, {call.masks, call.side, call.side}), on(device, ious, {call.masks}), targets});
  }
  device.trace(outputs, 0.25F);
  outputs.clear();
  if (dynamic_cast<StreamDevice*>(&device) != nullptr) {
    for (const auto& mask : *traced) CHECK(mask.counts.empty());  // not yet
  }
  device.wait();
  return *traced;
}

TEST_CASE("masks are those of the host, however many calls a wait has") {
  Both both;
  std::int64_t waits = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<Call> calls{{4, 16, false, {0, 1, 2, 3}}, {1, 16, false, {0}}, {6, 16, false, {5, 3, 0}}};
    const auto expected = traced_on(both.host, calls, 3 * seed);
    const auto got = traced_on(both.device, calls, 3 * seed);
    ++waits;
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i].fault == expected[i].fault);
      if (!got[i].fault.empty()) continue;
      CHECK(got[i].counts == expected[i].counts);
      CHECK(got[i].predicted_iou == expected[i].predicted_iou);
    }
  }
  CHECK(both.device.counts().waits == waits);
  CHECK(both.device.counts().overflows == 0);
  CHECK(both.device.counts().downloads == waits);
}

TEST_CASE("masks with more outline than there was room for take one wait more, once") {
  Both both;
  const std::vector<Call> smooth{{3, 16, false, {0, 1, 2}}}, rough{{2, 64, true, {0, 1}}, {3, 16, false, {0, 1, 2}}};
  for (const auto& calls : {smooth, rough, rough}) {
    const auto expected = traced_on(both.host, calls, 1), got = traced_on(both.device, calls, 1);
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i].fault == expected[i].fault);
      if (got[i].fault.empty()) CHECK(got[i].counts == expected[i].counts);
    }
  }
  CHECK(both.device.counts().overflows == 1);
  CHECK(both.device.counts().waits == 4);
}

TEST_CASE("prompts lie on the device in order") {
  Both both;
  std::vector<Box> boxes;
  std::vector<int> index;
  for (int i = 0; i < 300; ++i) {
    boxes.push_back({static_cast<float>(i), 1, 2, 3});
    index.push_back(i / 7);
  }
  const Prompts prompts = both.device.prompts(boxes, index);
  CHECK(prompts.boxes.device == 0);
  const auto corners = values_of<float>(both.device, prompts.boxes);
  const auto pictures = values_of<std::int64_t>(both.device, prompts.image_index);
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    CHECK(corners[4 * i] == boxes[i].x0);
    CHECK(corners[4 * i + 3] == boxes[i].y1);
    CHECK(pictures[i] == index[i]);
  }
}

TEST_CASE("nothing to do is done without fault, on both") {
  Both both;
  BoxSearch search;
  search.head = {HeadLayout::v8, 64, 64, 3};
  for (Device* device : {static_cast<Device*>(&both.host), static_cast<Device*>(&both.device)}) {
    const Tensor none = device->empty({0, 3, 64, 64});
    CHECK(none.bytes() == 0);
    device->zero(none);
    device->copy(none, none);
    const Prompts prompts = device->prompts({}, {});
    CHECK(prompts.boxes.shape == std::vector<std::int64_t>{0, 4});
    CHECK(prompts.image_index.shape == std::vector<std::int64_t>{0});

    const auto found = std::make_shared<FoundBoxes>();
    const auto geometry = letterbox_geometry(64, 64, {.width = 64, .height = 64});
    device->find_boxes(device->empty({0, 7, 20}), search, {});
    device->find_boxes(on(*device, detector_output(2, 20, 1), {2, 7, 20}), search, {});
    device->find_boxes(device->empty({1, 7, 0}), search, std::vector<BoxTarget>{{0, geometry, found}});

    device->trace({}, 0.0F);
    device->trace(std::vector<MaskCall>{{device->empty({0, 16, 16}), device->empty({0}), {}},
                                        {device->empty({2, 16, 16}), device->empty({2}), {}}},
                  0.0F);
    device->wait();
    CHECK(found->boxes.empty());
    CHECK(found->fault.empty());
    CHECK(!found->more);
    device->wait();
  }
  CHECK(both.device.counts().waits == 2);
  CHECK(both.device.counts().downloads == 0);
}

TEST_CASE("what a failed batch asked for goes to nobody and disturbs nobody") {
  Both both;
  BoxSearch search;
  search.head = {HeadLayout::v8, 64, 64, 3};
  const auto values = detector_output(1, 20, 1);
  {
    const std::vector<BoxTarget> targets{
        {0, letterbox_geometry(64, 64, {.width = 64, .height = 64}), std::make_shared<FoundBoxes>()}};
    both.device.find_boxes(on(both.device, values, {1, 7, 20}), search, targets);
  }  // nobody waited
  const auto got = found_on(both.device, values, 1, 20, search, {0});
  CHECK(got[0].boxes == found_on(both.host, values, 1, 20, search, {0})[0].boxes);
}

}  // namespace
}  // namespace millrace
