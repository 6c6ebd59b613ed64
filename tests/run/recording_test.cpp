#include "run/recording.hpp"
#include "base/json.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace millrace;

namespace {

Recording example() {
  PipelineModel real;
  real.frame_stages = {{"decode", {0.02}}};
  real.lane_stages = {{"detect", {0.01, 2}}, {"segment", {0.005, 1, 0.02}}};
  real.batch_stages = {{"encode", {0.01}}};
  real.read.mean.wait_s = 0.003;
  real.commit.mean.core_s = 0.001;
  real.frames = 100;
  real.others = 1;
  const Outcome outcome = simulate(real);
  const auto recording =
      recording_of(outcome.finished - outcome.begun, {real.batch, 2, 10, 8'000'000, 100 * 1'000'000, "segment"});
  REQUIRE(recording);
  return *recording;
}

}  // namespace

TEST_CASE("a recording that was written and read predicts the same") {
  Recording recording = example();
  recording.disk_stall = 0.8;
  const auto again = recording_from_json(to_json(recording));
  REQUIRE(again);
  const WhatIf before(recording), after(*again);
  for (const char* change :
       {"segment x2", "read.threads=8", "threads.lanes=2", "gate.frames=4", "gate.memory=3M", "others=0", "gpus=2"}) {
    const double expected = before.predict(change).frames_per_s;
    CHECK(after.predict(change).frames_per_s == doctest::Approx(expected).epsilon(0.001));
  }
  CHECK(again->disk_stall == doctest::Approx(0.8));
}

TEST_CASE("limits of calls are written too") {
  Recording recording = example();
  recording.row_limits = {{"segment.box_batch", "segment", 64, 256, 160, 3, 0.02},
                          {"detect.exec_batch", "detect", 4, 8, 1, 1}};
  const auto again = recording_from_json(to_json(recording));
  REQUIRE(again);
  REQUIRE(again->row_limits.size() == 2);
  CHECK(again->row_limits[0].most == 256);
  CHECK(again->row_limits[0].call_s.value() == doctest::Approx(0.02));
  CHECK_FALSE(again->row_limits[1].call_s);
  const char* change = "segment.box_batch=16";
  CHECK(WhatIf(*again).predict(change).frames_per_s ==
        doctest::Approx(WhatIf(recording).predict(change).frames_per_s).epsilon(0.001));
  recording.row_limits[0].stage = "other";
  CHECK_FALSE(recording_from_json(to_json(recording)));
}

TEST_CASE("the time to launch the work of a GPU is written too") {
  Recording recording = example();
  for (Cost& cost : recording.model.lane_stages[1].recorded) cost.launch_s = cost.device_s / 2;
  const auto again = recording_from_json(to_json(recording));
  REQUIRE(again);
  const std::vector<Cost>& read = again->model.lane_stages[1].recorded;
  REQUIRE(!read.empty());
  REQUIRE(read.front().launch_s > 0);
  for (std::size_t i = 0; i < read.size(); ++i)
    CHECK(read[i].launch_s == doctest::Approx(recording.model.lane_stages[1].recorded[i].launch_s).epsilon(1e-5));
}

TEST_CASE("a damaged recording is no recording") {
  const std::string text = to_json(example());
  for (std::size_t length = 0; length < text.size(); length += 97)
    CHECK_FALSE(recording_from_json(text.substr(0, length)));
  CHECK_FALSE(recording_from_json("[]"));
  const auto with = [&](const char* pointer, const nlohmann::json& value) {
    auto json = nlohmann::json::parse(text);
    json[nlohmann::json::json_pointer(pointer)] = value;
    return recording_from_json(json.dump());
  };
  CHECK(with("/cores", 4));
  CHECK_FALSE(with("/version", 4));
  CHECK_FALSE(with("/disk_stall", -1));
  CHECK(with("/frames_in_memory", 0));
  CHECK_FALSE(with("/frames_in_memory", -1));
  CHECK_FALSE(with("/pixel_bytes", -1));
  CHECK_FALSE(with("/pixels_until", 7));
  CHECK(with("/pixels_until", "commit"));
  CHECK_FALSE(with("/pixels_until", "segmnt"));  // nothing would ever free them
  CHECK_FALSE(with("/latency_p95_s", -1));
  CHECK_FALSE(with("/cores", 0));
  CHECK_FALSE(with("/gate_frames", 0));
  CHECK(with("/batch", 2));
  CHECK_FALSE(with("/batch", 64));  // more than the gate holds: nothing would ever come out
  CHECK_FALSE(with("/workers", 1e9));
  CHECK_FALSE(with("/workers", "many"));
  CHECK_FALSE(with("/others", -1));
  CHECK_FALSE(with("/frame_stages", nullptr));
  CHECK_FALSE(with("/read/costs", nlohmann::json::array()));
  CHECK_FALSE(with("/read/costs/0/0", -1));
  CHECK_FALSE(with("/read/costs/0/3", nullptr));
  CHECK_FALSE(with("/read/costs/0/4", -1));
  CHECK_FALSE(with("/read/costs/0", nlohmann::json::array({1, 2})));
}
