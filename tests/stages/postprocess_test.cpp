#include "stages/postprocess.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <numeric>

#include "io/files/json_writer.hpp"
#include "tests/stages/stage_fixture.hpp"

namespace millrace {
namespace {

// Logits of `count` objects, 4 x 4 each. Object n has n + 1 everywhere except in its first column, which is -1.
PictureLogits logits_of(int count) {
  Tensor rows = Tensor::empty({count, 4, 4});
  for (int i = 0; i < count * 16; ++i)
    rows.host<float>()[static_cast<std::size_t>(i)] = i % 4 == 0 ? -1.0F : static_cast<float>(i / 16 + 1);
  PictureLogits logits;
  Tensor iou = Tensor::empty({count});
  for (int row = 0; row < count; ++row)
    iou.host<float>()[static_cast<std::size_t>(row)] = 0.5F + static_cast<float>(row) / 10;
  const auto outputs = std::make_shared<const std::vector<Tensor>>(std::vector<Tensor>{rows, iou});
  for (int row = 0; row < count; ++row) logits.objects.push_back({outputs, row});
  logits.geometry = {4, 4, side, side, side, side, side, side};
  return logits;
}

std::vector<Mask> masks_of(PictureLogits logits, const OptionValues& values = {}) {
  StageFixture fixture;
  Batch batch = batch_of({1});
  batch.frames[0]->columns.set(mask_logits, std::move(logits));
  Postprocess(parse_options<Postprocess::Options>("postprocess", values), fixture.context()).run(batch);
  REQUIRE_FALSE(batch.frames[0]->failed());
  return batch.frames[0]->columns.get(masks);
}

TEST_CASE("masks at full size as runs, in the order of the objects") {
  const auto result = masks_of(logits_of(2));
  REQUIRE(result.size() == 2);
  for (const Mask& mask : result) {
    CHECK(mask.width == side);
    CHECK(mask.height == side);
    CHECK(std::accumulate(mask.counts.begin(), mask.counts.end(), 0U) == side * side);
    std::int64_t ones = 0;
    for (std::size_t i = 1; i < mask.counts.size(); i += 2) ones += mask.counts[i];
    CHECK(mask.area == ones);
  }
  // A cell has 16 pixels. The edge is where the values between the centres of column 0 (-1) and 1 (n + 1) cross zero.
  CHECK(result[0].counts.front() == 16 * side);
  CHECK(result[1].counts.front() < 16 * side);
  CHECK(result[1].predicted_iou == doctest::Approx(0.6F));
}

TEST_CASE("postprocess.mask_threshold") {
  CHECK(masks_of(logits_of(1), {{"mask_threshold", {"0"}}})[0].area == 48 * side);
  CHECK(masks_of(logits_of(1), {{"mask_threshold", {"0.5"}}})[0].area < 48 * side);
  CHECK(masks_of(logits_of(1), {{"mask_threshold", {"1"}}})[0].area == 0);
  CHECK(masks_of(logits_of(1), {{"mask_threshold", {"-2"}}})[0].area == side * side);
}

TEST_CASE("no objects, no masks") { CHECK(masks_of(logits_of(0)).empty()); }

TEST_CASE("a picture with logits that are not finite fails; its neighbour and failed frames do not change") {
  StageFixture fixture;
  Batch batch = batch_of({1, 1, 1});
  PictureLogits bad = logits_of(2);
  (*bad.objects[0].outputs)[0].host<float>()[20] = std::numeric_limits<float>::quiet_NaN();
  batch.frames[0]->columns.set(mask_logits, std::move(bad));
  batch.frames[1]->columns.set(mask_logits, logits_of(2));
  batch.frames[2]->fail("decode", Reason::truncated, "cut");
  Postprocess({}, fixture.context()).run(batch);
  REQUIRE(batch.frames[0]->failed());
  CHECK(batch.frames[0]->failure->reason == Reason::non_finite);
  CHECK(batch.frames[0]->failure->stage == "segment");
  CHECK(batch.frames[1]->columns.get(masks).size() == 2);
  CHECK(batch.frames[2]->failure->reason == Reason::truncated);
}

TEST_CASE("a mask in the segment line") {
  JsonWriter json;
  json.begin_object();
  write_mask({Mask{{4, 2}, 2, 3, 2, 0.123456F}}, 0, json);
  json.end_object();
  CHECK(json.take() == R"({"rle": {"size": [3, 2], "counts": "42"}, "iou": 0.12346, "area": 2})");
}

}  // namespace
}  // namespace millrace
