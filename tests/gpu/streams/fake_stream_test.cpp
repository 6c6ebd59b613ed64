#include "gpu/streams/fake_stream.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/ops/outline.hpp"

namespace millrace {
namespace {

TEST_CASE("failed work cancels the work queued after it, and does not run again") {
  FakeStream stream;
  int first = 0, behind = 0, later = 0;
  const auto memory = stream.allocate(1000);
  stream.defer([&, memory] { ++first; });
  stream.defer([] { throw std::runtime_error("no"); });
  stream.defer([&, memory] { ++behind; });
  CHECK_THROWS_AS(stream.wait(), std::runtime_error);
  stream.defer([&] { ++later; });
  stream.wait();
  CHECK(first == 1);
  CHECK(behind == 0);
  CHECK(later == 1);
}

TEST_CASE("a stream that ends without a wait frees the memory of its work") {
  std::weak_ptr<void> watched;
  {
    FakeStream stream;
    auto memory = stream.allocate(1000);
    watched = memory;
    stream.defer([memory = std::move(memory)] {});
    CHECK(!watched.expired());
  }
  CHECK(watched.expired());
}

/// Outlines a mask that covers the whole picture, on a device with `memory` bytes. Returns whether they were enough.
bool outline_whole_picture(std::int64_t memory, bool abandoned, OutlinedMask& mask) {
  Device device(std::make_unique<FakeStream>(0, std::make_shared<FakeMemory>(memory)));
  const auto outlined = std::make_shared<OutlinedMask>();
  bool enough = true;
  try {
    const Tensor logits = device.empty({1, 16, 16}, DType::f32), iou = device.empty({1}, DType::f32);
    device.zero(logits);
    device.zero(iou);
    const MaskTarget target{0, {16, 16, 64, 64, 64, 48, 80, 60}, outlined};
    outline(device, std::vector<MaskCall>{{logits, iou, {target}}, {logits, iou, {target}}}, -1.0F);
  } catch (const std::bad_alloc&) {
    enough = false;
  }
  if (abandoned) {
    device.abandon();
  } else {
    device.wait();
  }
  mask = *outlined;
  return enough;
}

TEST_CASE("masks stay empty wherever memory for them runs out, and on an abandoned device") {
  int failed = 0;
  OutlinedMask mask;
  std::int64_t memory = 0;
  for (; memory < 10'000'000 && !outline_whole_picture(memory, false, mask); memory += 256) {
    ++failed;
    CHECK(mask.counts.empty());
    CHECK(mask.fault.empty());
  }
  CHECK(failed > 10);
  CHECK(mask.counts.size() == 2);  // the whole picture
  CHECK(outline_whole_picture(memory, true, mask));
  CHECK(mask.counts.empty());
}

TEST_CASE("a stream counts work when it is done, not when it is queued") {
  FakeStream stream;
  const auto device = stream.allocate(4), host = stream.allocate_mapped(4);
  stream.upload(host.get(), device.get(), 4);
  stream.download(device.get(), host.get(), 4);
  CHECK(stream.counts() == StreamCounts{});
  stream.wait();
  stream.wait();
  CHECK(stream.counts() == StreamCounts{1, 1, 2});
}

TEST_CASE("host memory that changes before its upload is done is an error") {
  FakeStream stream;
  const auto device = stream.allocate(4), host = stream.allocate_mapped(4);
  stream.upload(host.get(), device.get(), 4);
  *static_cast<char*>(host.get()) = 1;
  CHECK_THROWS_AS(stream.wait(), std::logic_error);
  CHECK(stream.counts().uploads == 0);
}

TEST_CASE("with pinned memory, copies from or to other memory, or to memory already freed, are refused") {
  const auto pinned = std::make_shared<FakePinned>();
  FakeStream stream(0, nullptr, pinned), other(1, nullptr, pinned);
  const auto device = stream.allocate(100);
  auto host = other.allocate_mapped(100);
  std::vector<char> plain(100);
  CHECK_THROWS_AS(stream.upload(plain.data(), device.get(), 100), std::logic_error);
  CHECK_THROWS_AS(stream.download(device.get(), plain.data(), 100), std::logic_error);
  CHECK_THROWS_AS(stream.upload(host.get(), device.get(), 101), std::logic_error);
  auto* inside = static_cast<char*>(host.get()) + 10;
  stream.upload(inside, device.get(), 90);
  CHECK_NOTHROW(stream.wait());
  stream.upload(inside, device.get(), 90);
  host.reset();
  CHECK_THROWS_AS(stream.wait(), std::logic_error);
}

TEST_CASE("streams of a device share its memory, and keep freed memory until trim()") {
  const auto memory = std::make_shared<FakeMemory>(1000);
  FakeStream a(0, memory), b(0, memory);
  const auto free = [&] { return b.memory()->free_bytes; };
  CHECK(b.memory()->total_bytes == 1000);
  auto first = a.allocate(300), second = a.allocate(300);
  CHECK(free() == 400);
  CHECK_THROWS_AS(static_cast<void>(b.allocate(401)), std::bad_alloc);
  std::shared_ptr<void> others = b.allocate(350);
  int asked = 0;
  a.when_short([&] { ++asked, others.reset(), b.trim(); });
  CHECK_NOTHROW(static_cast<void>(a.allocate(400)));
  CHECK(asked == 1);
  CHECK_THROWS_AS(static_cast<void>(a.allocate(401)), std::bad_alloc);
  CHECK(asked == 2);
  a.trim();
  CHECK(free() == 400);
  first.reset();
  CHECK(free() == 400);
  first = a.allocate(200);  // from the memory that it kept
  CHECK(free() == 400);
  a.trim();
  CHECK(free() == 500);
  first.reset();
  second.reset();
  a.trim();
  CHECK(free() == 1000);
  CHECK(!FakeStream().memory());
}

}  // namespace
}  // namespace millrace
