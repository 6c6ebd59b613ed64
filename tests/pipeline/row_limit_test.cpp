#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "pipeline/what_if.hpp"
#include "tests/pipeline/what_if_fixture.hpp"

using namespace millrace;
using namespace millrace::what_if_fixture;

namespace {

/// A batch has `rows` boxes. A call of `segment` takes 20 ms, and each box 5 ms more.
PipelineModel with_calls(int rows, int most) {
  PipelineModel model = lane_bound();
  model.frame_stages[0].mean.core_s = 0.01;
  const double calls = std::ceil(static_cast<double>(rows) / most);
  model.lane_stages[1].mean.core_s = 0.02 * calls + 0.005 * rows;
  return model;
}

WhatIf recorded_with_calls(int rows, int most, std::optional<double> call_s = 0.02) {
  const PipelineModel model = with_calls(rows, most);
  const Outcome outcome = simulate(model);
  RunShape shape{model.batch, 1, 0};
  shape.row_limits = {{"segment.box_batch", "segment", most, 256, static_cast<double>(rows),
                       std::ceil(static_cast<double>(rows) / most), call_s}};
  const auto recording = recording_of(outcome.finished - outcome.begun, shape);
  REQUIRE(recording);
  return WhatIf(*recording);
}

}  // namespace

TEST_CASE("fewer and larger calls of a model save the part of a call that does not depend on its rows") {
  for (const auto& [before, after] : {std::pair(1, 16), {16, 1}, {4, 8}, {16, 3}, {64, 32}, {8, 200}}) {
    CAPTURE(before);
    CAPTURE(after);
    const Prediction found = recorded_with_calls(40, before).predict("segment.box_batch=" + std::to_string(after));
    CHECK(near(found.frames_per_s, rate_of(with_calls(40, after)), 0.02));
    CHECK(found.label == "segment.box_batch: " + std::to_string(after));
  }
  const WhatIf what_if = recorded_with_calls(40, 4);
  CHECK(
      near(what_if.predict("segment.box_batch=8, segment.box_batch=4").frames_per_s, rate_of(with_calls(40, 4)), 0.02));
  const auto table = what_if.table();
  CHECK(std::ranges::find(table, "segment.box_batch=8", &Prediction::change) != table.end());
  CHECK_THROWS_WITH((void)what_if.predict("segment.box_batch=257"),
                    "what-if segment.box_batch: the model takes at most 256 rows in a call");
  CHECK_THROWS_WITH((void)what_if.predict("detect.exec_batch=2"),
                    "what-if detect.exec_batch: is not known; known are threads.workers, threads.lanes, read.threads, "
                    "gate.frames, gate.memory, batch.size, segment.box_batch, cores, gpus, others=0, and STAGE xN");
}

TEST_CASE("batches with different numbers of rows have a partly filled last call") {
  Recording recording = recorded_with_calls(40, 16).recording();
  recording.row_limits[0].calls = 2.9;  // 2.5 full ones
  // 5 full calls, and the same part of one more: 5.4 instead of 2.9 calls of 20 ms, and 200 ms for the boxes
  const double before = 0.02 + 0.26, after = before + 2.5 * 0.02;
  const Prediction found = WhatIf(recording).predict("segment.box_batch=8");
  CHECK(near(found.frames_per_s, recording.frames_per_s * before / after, 0.02));
}

TEST_CASE("without calls of different sizes, nobody knows what a call costs") {
  const WhatIf what_if = recorded_with_calls(40, 4, std::nullopt);
  CHECK_THROWS_WITH(
      (void)what_if.predict("segment.box_batch=8"),
      "what-if segment.box_batch: nobody knows what a call costs, because all calls of this run had about "
      "the same size; 'millrace profile' measures it");
  const auto table = what_if.table();
  CHECK(std::ranges::none_of(table, [](const Prediction& it) { return it.change.starts_with("segment.box_batch"); }));
}

TEST_CASE("launching calls takes a part of a batch, and the GPU computes the same") {
  Recording recording = recorded_with_calls(40, 4).recording();
  for (Cost& cost : recording.model.lane_stages[1].recorded) cost = {.core_s = 0.04, .device_s = 0.05, .launch_s = 0.2};
  const auto before = recording.model.lane_stages[1].recorded[0];
  CHECK(before.device_s == 0.05);
  // 10 calls become 1: 180 ms of 240 less. The GPU needs 50 ms.
  const double ratio = WhatIf(recording).predict("segment.box_batch=256").frames_per_s / recording.frames_per_s;
  CHECK(near(ratio, (0.02 + 0.24) / (0.02 + 0.06), 0.1));
}

TEST_CASE("a later run with another limit checks the prediction") {
  const Recording before = recorded_with_calls(40, 1).recording(), after = recorded_with_calls(40, 16).recording();
  const auto checked = check_prediction(before, after);
  REQUIRE(checked);
  CHECK(checked->prediction.change == "segment.box_batch=16");
  CHECK(checked->inside());
}
