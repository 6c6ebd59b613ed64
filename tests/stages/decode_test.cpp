#include "stages/decode.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <new>

#include "gpu/streams/fake_stream.hpp"
#include "tests/io/decode/decode_inputs.hpp"
#include "tests/stages/stage_fixture.hpp"

namespace millrace {
namespace {

// A frame as it is after `read`.
Frame frame_of(const test::File& file, const DecodeLimits& limits) {
  Frame frame(Item{}, PlanPosition{});
  frame.file.size = file.size();
  frame.file.data = std::make_unique<std::uint8_t[]>(file.size());
  std::copy(file.begin(), file.end(), frame.file.data.get());
  frame.info = probe(frame.file.span(), limits);
  return frame;
}

DecodeLimits limits_with(const OptionValues& values, std::int64_t slab_bytes = 64 << 20) {
  return Decode::limits(parse_options<Decode::Options>(Decode::name, values), slab_bytes);
}

// Decodes with these options; returns the reason of a failure.
std::optional<Reason> reason_of(const test::File& file, const OptionValues& values) {
  StageFixture fixture;
  fixture.source().limits[0] = limits_with(values);
  try {
    Frame frame = frame_of(file, fixture.source().limits[0]);
    Decode({}, fixture.context()).run(frame);
    return std::nullopt;
  } catch (const PictureError& error) {
    return error.reason();
  }
}

TEST_CASE("a file's bytes become pixels, and the bytes are freed") {
  const test::Rgb ramp = test::ramp(37, 21);
  StageFixture fixture;
  Frame frame = frame_of(test::make_png(ramp), fixture.source().limits[0]);
  Decode({}, fixture.context()).run(frame);
  const PixelBuffer& raster = frame.columns.get(pixels);
  REQUIRE(raster.width == 37);
  REQUIRE(raster.height == 21);
  CHECK(std::equal(ramp.data.begin(), ramp.data.end(), raster.data.get()));
  CHECK(frame.file.data == nullptr);
  CHECK(fixture.counters[decode_warnings].count() == 0);
}

TEST_CASE("the byte credit lives as long as the pixels, for any owner") {
  StageFixture fixture;
  const auto budget = std::make_shared<CountingBudget>();
  Frame frame = frame_of(test::make_png(test::ramp(8, 8)), fixture.source().limits[0]);
  frame.set_credit(ByteCredit(budget, frame.info.pixel_bytes));
  Decode({}, fixture.context()).run(frame);
  CHECK(frame.credit.bytes() == 0);
  std::optional<PixelBuffer> other = frame.columns.get(pixels);
  frame.columns.drop(pixels);
  CHECK(budget->returned == 0);
  other.reset();
  CHECK(budget->returned == 8 * 8 * 3);
}

TEST_CASE("pixels are in the requested memory, which lives as long as they do") {
  StageFixture fixture;
  const auto pinned = std::make_shared<FakePinned>();
  fixture.source().memory = [&](std::size_t bytes) { return pinned->take(bytes); };
  const test::Rgb ramp = test::ramp(37, 21);
  for (const auto& file : {test::make_png(ramp), test::make_jpeg(ramp)}) {
    Frame frame = frame_of(file, fixture.source().limits[0]);
    Decode({}, fixture.context()).run(frame);
    const std::uint8_t* data = frame.columns.get(pixels).data.get();
    CHECK(pinned->holds(data, 37 * 21 * 3));
    frame.columns.drop(pixels);
    CHECK(!pinned->holds(data, 1));
  }
}

TEST_CASE("if the requested kind of memory is used up, pixels are in ordinary memory") {
  StageFixture fixture;
  fixture.source().memory = [](std::size_t) -> std::shared_ptr<void> { throw std::bad_alloc(); };
  const test::Rgb ramp = test::ramp(37, 21);
  Frame frame = frame_of(test::make_png(ramp), fixture.source().limits[0]);
  Decode({}, fixture.context()).run(frame);
  CHECK(std::equal(ramp.data.begin(), ramp.data.end(), frame.columns.get(pixels).data.get()));
}

TEST_CASE("a picture that does not decode gives its credit back") {
  StageFixture fixture;
  const auto budget = std::make_shared<CountingBudget>();
  const test::File whole = test::make_jpeg(test::ramp(64, 256));
  Frame frame = frame_of(test::cut(whole, whole.size() * 9 / 10), fixture.source().limits[0]);
  frame.set_credit(ByteCredit(budget, frame.info.pixel_bytes));
  CHECK_THROWS_AS(Decode({}, fixture.context()).run(frame), PictureError);
  CHECK(budget->returned == 64 * 256 * 3);
  CHECK(frame.columns.find(pixels) == nullptr);
}

TEST_CASE("a picture larger than a slab is reduced, its info keeps the full size") {
  StageFixture fixture;
  fixture.source().limits[0] = limits_with({}, 2000);
  Frame frame = frame_of(test::make_png(test::ramp(60, 40)), fixture.source().limits[0]);
  Decode({}, fixture.context()).run(frame);
  CHECK(frame.info.width == 60);
  CHECK(frame.info.height == 40);
  CHECK(frame.info.reduction > 1);
  CHECK(frame.columns.get(pixels).width == (60 + frame.info.reduction - 1) / frame.info.reduction);
}

TEST_CASE("decode.max_megapixels") {
  const test::File file = test::make_png(test::ramp(50, 40));
  CHECK(reason_of(file, {}) == std::nullopt);
  CHECK(reason_of(file, {{"max_megapixels", {"0.002"}}}) == std::nullopt);
  CHECK(reason_of(file, {{"max_megapixels", {"0.0019"}}}) == Reason::too_large);
}

TEST_CASE("decode.max_scans") {
  const test::File file = test::make_jpeg(test::ramp(64, 64), {.progressive = true});
  CHECK(reason_of(file, {}) == std::nullopt);
  CHECK(reason_of(file, {{"max_scans", {"2"}}}) == Reason::too_large);
}

TEST_CASE("decode.max_memory") {
  const test::File file = test::make_jpeg(test::ramp(64, 64), {.progressive = true, .subsampled = false});
  CHECK(reason_of(file, {}) == std::nullopt);
  CHECK(reason_of(file, {{"max_memory", {"24576"}}}) == std::nullopt);  // two bytes a coefficient
  CHECK(reason_of(file, {{"max_memory", {"24575"}}}) == Reason::too_large);
}

TEST_CASE("decode.accept_truncated") {
  const test::File whole = test::make_jpeg(test::ramp(64, 256));
  const test::File nine_tenths = test::cut(whole, whole.size() * 9 / 10);
  CHECK(reason_of(whole, {}) == std::nullopt);
  CHECK(reason_of(nine_tenths, {}) == Reason::truncated);
  CHECK(reason_of(nine_tenths, {{"accept_truncated", {"0.5"}}}) == std::nullopt);
  CHECK(reason_of(nine_tenths, {{"accept_truncated", {"0.99"}}}) == Reason::truncated);

  StageFixture fixture;
  fixture.source().limits[0] = limits_with({{"accept_truncated", {"0.5"}}});
  Frame frame = frame_of(nine_tenths, fixture.source().limits[0]);
  Decode({}, fixture.context()).run(frame);
  CHECK(fixture.counters[decode_warnings].count() == 1);
}

}  // namespace
}  // namespace millrace
