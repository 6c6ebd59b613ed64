// A device on a stream uploads and downloads in order. The CPU uses host memory in place.
#include "gpu/device.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "gpu/prompts.hpp"
#include "tests/gpu/on_device.hpp"

namespace millrace {
namespace {

TEST_CASE("the boxes for the segmenter arrive on the device in their order") {
  HostAndDevice both;
  std::vector<Box> boxes;
  std::vector<int> index;
  for (int i = 0; i < 300; ++i) {
    boxes.push_back({static_cast<float>(i), 1, 2, 3});
    index.push_back(i / 7);
  }
  const Prompts prompts = make_prompts(both.device, boxes, index);
  CHECK(prompts.boxes.device == 0);
  const auto corners = values_of<float>(both.device, prompts.boxes);
  const auto pictures = values_of<std::int64_t>(both.device, prompts.image_index);
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    CHECK(corners[4 * i] == boxes[i].x0);
    CHECK(corners[4 * i + 3] == boxes[i].y1);
    CHECK(pictures[i] == index[i]);
  }
}

TEST_CASE("empty tensors and prompts are no error, on host and device") {
  HostAndDevice both;
  for (Device* device : {&both.host, &both.device}) {
    const Tensor none = device->empty({0, 3, 64, 64});
    CHECK(none.bytes() == 0);
    device->zero(none);
    device->copy(none, none);
    const Prompts prompts = make_prompts(*device, {}, {});
    CHECK(prompts.boxes.shape == std::vector<std::int64_t>{0, 4});
    CHECK(prompts.image_index.shape == std::vector<std::int64_t>{0});
    device->wait();
    device->wait();
  }
  CHECK(both.device.counts().waits == 2);
  CHECK(both.host.counts().waits == 0);
}

TEST_CASE("the CPU reads the pixels of a picture where they are, without a copy") {
  Device host;
  auto pixels = std::make_shared<std::vector<std::uint8_t>>(noise(4, 3, 1));
  const std::weak_ptr<std::vector<std::uint8_t>> watched = pixels;
  DeviceImage image = host.upload({pixels->data(), 4, 3}, pixels);
  CHECK(image.data.get() == pixels->data());
  pixels.reset();
  host.wait();
  CHECK(!watched.expired());  // the image owns it
  image = {};
  CHECK(watched.expired());
  CHECK(host.counts().uploads == 0);
}

TEST_CASE("a picture stays on the device while its owner exists; its pixels stay on the host until the next wait") {
  Device device(make_stream());
  auto pixels = std::make_shared<std::vector<std::uint8_t>>(noise(4, 3, 1));
  const std::weak_ptr<std::vector<std::uint8_t>> watched = pixels;
  const DeviceImage image = device.upload({pixels->data(), 4, 3}, pixels);
  const std::vector<std::uint8_t> expected = *pixels;
  pixels.reset();
  CHECK(!watched.expired());
  device.wait();
  CHECK(watched.expired());
  const Tensor own = device.empty({4 * 3 * 3}, DType::u8);
  device.copy(image.data.get(), own.data, own.bytes());
  CHECK(values_of<std::uint8_t>(device, own) == expected);
}

TEST_CASE("a result that needs a second download is complete when `wait()` returns; a lost device delivers nothing") {
  Device device(make_stream());
  int asked = 0, handed_over = 0;
  device.at_wait([&] { ++asked; },
                 [&] {
                   ++handed_over;
                   device.at_wait({}, [&] { ++handed_over; });
                 });
  device.wait();
  CHECK(asked == 1);
  CHECK(handed_over == 2);
  CHECK(device.counts().waits == 2);
  CHECK(device.counts().overflows == 1);
  CHECK(device.counts_by_stage().empty());  // no stage has begun
  device.at_wait([&] { ++asked; }, [&] { ++handed_over; });
  device.abandon();
  device.wait();
  CHECK(asked == 1);
  CHECK(handed_over == 2);
}

TEST_CASE("copies and waits count for the stage that began last, and for the line of code that asked for them") {
  Device device(make_stream());
  const auto pixels = std::make_shared<std::vector<std::uint8_t>>(noise(4, 3, 1));
  const auto upload = [&] { return device.upload({pixels->data(), 4, 3}, pixels); };
  DeviceImage image = upload();
  device.wait();
  device.begin_stage("first");
  const int line = __LINE__;
  for (int i = 0; i < 3; ++i) device.wait();
  image = upload();
  device.begin_stage("second");
  const auto host = device.mapped<std::uint8_t>(4 * 3 * 3);
  device.at_wait([&] { device.download(image.data.get(), host.get(), 4 * 3 * 3); }, [] {});
  device.wait();
  CHECK(std::equal(pixels->begin(), pixels->end(), host.get()));
  const auto place = [](int at) { return "device_test.cpp:" + std::to_string(at); };
  const auto& stages = device.counts_by_stage();
  REQUIRE(stages.size() == 2);
  const CountsByCall &first = stages.at("first"), &second = stages.at("second");
  CHECK(first.size() == 2);
  CHECK(first.at(place(line + 1)).waits == 3);
  CHECK(first.at(place(line - 4)).uploads == 1);  // the place is in the lambda
  CHECK(second.size() == 2);
  CHECK(second.at(place(line + 5)).downloads == 1);
  CHECK(second.at(place(line + 6)).waits == 1);
}

}  // namespace
}  // namespace millrace
