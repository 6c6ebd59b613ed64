// Masks of a device have the same bits as the host's, and are empty before the wait.
#include "gpu/ops/outline.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <random>
#include <vector>

#include "tests/gpu/on_device.hpp"

namespace millrace {
namespace {

/// Smooth blobs, or with `rough` noise, which has an outline at every pixel.
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

std::vector<OutlinedMask> outlined_on(Device& device, const std::vector<Call>& calls, unsigned seed) {
  const auto outlined = std::make_shared<std::vector<OutlinedMask>>();
  std::size_t total = 0;
  for (const Call& call : calls) total += call.rows.size();
  outlined->resize(total);
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
                height = 90 - 10 * (row / 2);  // two objects per picture
      targets.push_back(
          {row,
           {call.side, call.side, 4 * call.side, 4 * call.side, 4 * call.side, 3 * call.side, width, height},
           {outlined, &(*outlined)[next++]}});
    }
    outputs.push_back(
        {on(device, logits, {call.masks, call.side, call.side}), on(device, ious, {call.masks}), targets});
  }
  outline(device, outputs, 0.25F);
  outputs.clear();
  if (!device.on_host()) {
    for (const auto& mask : *outlined) CHECK(mask.counts.empty());  // not before the wait
  }
  device.wait();
  return *outlined;
}

TEST_CASE("masks equal the host's, for any number of calls in a wait") {
  HostAndDevice both;
  std::int64_t waits = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<Call> calls{{4, 16, false, {0, 1, 2, 3}}, {1, 16, false, {0}}, {6, 16, false, {5, 3, 0}}};
    const auto expected = outlined_on(both.host, calls, 3 * seed);
    const auto got = outlined_on(both.device, calls, 3 * seed);
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

TEST_CASE("masks whose outlines need more room than expected take one more wait, once") {
  HostAndDevice both;
  const std::vector<Call> smooth{{3, 16, false, {0, 1, 2}}}, rough{{2, 64, true, {0, 1}}, {3, 16, false, {0, 1, 2}}};
  for (const auto& calls : {smooth, rough, rough}) {
    const auto expected = outlined_on(both.host, calls, 1), got = outlined_on(both.device, calls, 1);
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i].fault == expected[i].fault);
      if (got[i].fault.empty()) CHECK(got[i].counts == expected[i].counts);
    }
  }
  CHECK(both.device.counts().overflows == 1);
  CHECK(both.device.counts().waits == 4);
}

TEST_CASE("without masks nothing is copied, on host and device") {
  HostAndDevice both;
  for (Device* device : {&both.host, &both.device}) {
    outline(*device, {}, 0.0F);
    outline(*device,
            std::vector<MaskCall>{{device->empty({0, 16, 16}), device->empty({0}), {}},
                                  {device->empty({2, 16, 16}), device->empty({2}), {}}},
            0.0F);
    device->wait();
  }
  CHECK(both.device.counts().waits == 1);
  CHECK(both.device.counts().downloads == 0);
}

}  // namespace
}  // namespace millrace
