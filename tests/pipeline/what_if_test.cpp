#include "pipeline/what_if.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "tests/pipeline/what_if_fixture.hpp"

using namespace millrace;
using namespace millrace::what_if_fixture;

TEST_CASE("a replay without a change has the rate of the run") {
  CHECK(recorded(lane_bound()).mismatch() < 0.01);
  PipelineModel busy = lane_bound();
  busy.cores = 1;
  busy.spread = 0.5;
  CHECK(recorded(busy).mismatch() < 0.05);
}

TEST_CASE("a faster stage helps until another one limits the run") {
  const WhatIf what_if = recorded(lane_bound());
  CHECK(near(what_if.predict("segment x2").frames_per_s, 1 / 0.07, 0.03));  // the worker needs 0.07 s
  CHECK(near(what_if.predict("segment x1.25").frames_per_s, 1 / 0.084, 0.03));
  CHECK(near(what_if.predict("encode x2").frames_per_s, 10, 0.03));
  CHECK(near(what_if.predict("threads.lanes=2").frames_per_s, 1 / 0.07, 0.05));
}

TEST_CASE("options have the same effect in a prediction as in a run") {
  PipelineModel model = lane_bound();
  model.spread = 0.4;
  model.frames = 600;
  const auto check = [](const PipelineModel& base, const std::string& change, const PipelineModel& changed) {
    CAPTURE(change);
    const Prediction predicted = recorded(base).predict(change);
    const double real = rate_of(changed);
    CHECK(near(predicted.frames_per_s, real, 0.06));
    CHECK(predicted.low < real);
    CHECK(real < predicted.high);
  };
  PipelineModel changed = model;
  changed.lane_stages[1].mean.core_s = 0.01;
  PipelineModel decode_bound = changed;
  changed.workers = 3;
  check(decode_bound, "threads.workers=3", changed);
  changed = model;
  changed.cores = 1;
  check(model, "cores=1", changed);
  PipelineModel tight = model;
  tight.admission = 2;
  check(tight, "gate.frames=16", model);
  PipelineModel slow_reads = model;
  slow_reads.read.mean.wait_s = 0.5;
  slow_reads.read_threads = 2;
  PipelineModel more_readers = slow_reads;
  more_readers.read_threads = 8;
  more_readers.admission = slow_reads.admission;
  check(slow_reads, "read.threads=8", more_readers);
}

/// Reading takes nearly all of the time: 20 ms of the disk, or of a wait, for each picture.
PipelineModel read_bound(bool disk, int readers) {
  PipelineModel model = lane_bound();
  for (auto* group : {&model.frame_stages, &model.lane_stages, &model.batch_stages}) {
    for (auto& stage : *group) stage.mean.core_s = 0.0005;
  }
  model.read.mean = disk ? Cost{.core_s = 0.0001, .disk_s = 0.02} : Cost{.core_s = 0.0001, .wait_s = 0.02};
  model.read_threads = readers;
  model.spread = 0.3;
  return model;
}

/// As the system tells it, some thread waited for a disk for this part of the run.
WhatIf recorded_with_stall(const PipelineModel& model, double stall) {
  const Outcome outcome = simulate(model);
  Snapshot window = outcome.finished - outcome.begun;
  window.machine.io_stall_ns = static_cast<std::int64_t>(stall * static_cast<double>(window.time_ns));
  const auto recording = recording_of(window, {model.batch, 1, 0});
  REQUIRE(recording);
  return WhatIf(*recording);
}

TEST_CASE("readers share a disk") {
  for (const int readers : {1, 2, 8}) {
    CAPTURE(readers);
    CHECK(near(rate_of(read_bound(true, readers)), 50, 0.1));
    CHECK(near(rate_of(read_bound(false, readers)), 50.0 * readers, 0.1));
  }
}

TEST_CASE("the interval for more readers covers a full disk and one that can do more") {
  for (const bool full : {true, false}) {
    for (const int readers : {1, 2, 4}) {
      CAPTURE(full);
      CAPTURE(readers);
      const WhatIf what_if = recorded_with_stall(read_bound(full, readers), 0.9);
      const double before = rate_of(read_bound(full, readers));
      const Prediction more = what_if.predict("read.threads=" + std::to_string(4 * readers));
      const double real = rate_of(read_bound(full, 4 * readers));
      CHECK(more.low < real);
      CHECK(real < more.high);
      CHECK(more.low < before);
      CHECK(more.high > 3 * before);
      CHECK(near(more.frames_per_s, 2 * before, 0.15));
      // A disk that is twice as fast is the same in both.
      const Prediction faster = what_if.predict("read x2");
      CHECK(near(faster.frames_per_s, 2 * before, 0.1));
      CHECK(faster.high / faster.low < 2);
    }
  }
}

TEST_CASE("waits that are not for a disk do not share one") {
  const Prediction more = recorded_with_stall(read_bound(false, 2), 0.1).predict("read.threads=4");
  CHECK(near(more.frames_per_s, rate_of(read_bound(false, 4)), 0.05));
  CHECK(more.low > rate_of(read_bound(false, 2)));
  // Nor do reads that hardly wait, on a machine whose disk is busy for others.
  const Prediction cached = recorded_with_stall(lane_bound(), 0.9).predict("read.threads=8");
  CHECK(near(cached.frames_per_s, 10, 0.03));
  CHECK(cached.high / cached.low < 1.5);
}

TEST_CASE("programs that took cores are gone in a prediction") {
  PipelineModel alone = lane_bound();
  alone.cores = 2;
  alone.spread = 0.3;
  PipelineModel beside = alone;
  beside.others = 3;
  const WhatIf what_if = recorded(beside);
  CHECK(what_if.mismatch() < 0.05);
  CHECK(near(what_if.predict("others=0").frames_per_s, rate_of(alone), 0.06));
}

TEST_CASE("a stage gains by its kernels, also if a later stage waits for them") {
  PipelineModel model = lane_bound();
  // Kernels run for 0.08 s, while the host launches them for 0.03 s.
  model.lane_stages = {{"segment", {0.005, 1, 0.08, 0, 0.03}}, {"postprocess", {0.002}}};
  model.workers = 4;
  model.cores = 16;
  const Outcome outcome = simulate(model);
  Snapshot window = outcome.finished - outcome.begun;
  const auto lane = std::ranges::find_if(window.resources, &ResourceReading::in_turn);
  REQUIRE(lane != window.resources.end());
  const auto segment = &lane->parts[0], postprocess = &lane->parts[1];
  REQUIRE(segment->samples.size() == postprocess->samples.size());
  for (std::size_t i = 0; i < segment->samples.size(); ++i) {
    ServiceSample& from = segment->samples[i];
    const std::int64_t wait_ns = from.took_ns - from.no_core_ns - from.core_ns;
    from.took_ns -= wait_ns;
    postprocess->samples[i].took_ns += wait_ns;
  }
  const auto recording = recording_of(window, {model.batch, 1, 0});
  REQUIRE(recording);
  const WhatIf what_if(*recording);
  CHECK(what_if.mismatch() < 0.02);
  PipelineModel faster = model;
  faster.lane_stages[0].mean = {0.0025, 1, 0.04, 0, 0.015};
  CHECK(near(what_if.predict("segment x2").frames_per_s, rate_of(faster), 0.03));
  CHECK(near(what_if.predict("postprocess x2").frames_per_s, rate_of(model), 0.03));
}

TEST_CASE("several lanes wait for their own copies, and not for those of others") {
  PipelineModel model = lane_bound();
  // Three lanes, each with 0.02 s of copies, 0.03 s of kernels and 0.01 s on a core for a picture.
  model.lane_stages = {{"preprocess", {0, 1, 0, 0.02}}, {"segment", {0.01, 1, 0.03}}};
  model.lanes = 3;
  model.workers = 8;
  model.cores = 16;
  const Outcome outcome = simulate(model);
  Snapshot window = outcome.finished - outcome.begun;
  ResourceReading copies{{.name = "GPU uploads", .servers = 1}, {}, false, true, true};
  copies.parts.push_back({.name = "preprocess uploads", .stage = "preprocess", .servers = 1});
  copies.parts[0].busy_ns = copies.total.busy_ns = 20'000'000 * window.committed;
  window.resources.push_back(copies);
  const auto recording = recording_of(window, {model.batch, 1, 0});
  REQUIRE(recording);
  CHECK(recording->model.gpus == 1);
  const StageCosts& preprocess = recording->model.lane_stages[0];
  for (const Cost& cost : preprocess.recorded) CHECK(near(cost.wait_s, 0.02 * model.batch, 0.05));
  PipelineModel changed = model;
  changed.lanes = 1;
  CHECK(near(WhatIf(*recording).predict("threads.lanes=1").frames_per_s, rate_of(changed), 0.05));
}

TEST_CASE("a second GPU has lanes of its own") {
  PipelineModel model = lane_bound();
  for (auto& stage : model.lane_stages) stage.mean = {0.005, 1, stage.mean.core_s};
  model.lanes = 2;
  model.workers = 4;
  model.cores = 16;
  PipelineModel changed = model;
  changed.gpus = 2;
  changed.lanes = 4;
  CHECK(near(recorded(model).predict("gpus=2").frames_per_s, rate_of(changed), 0.06));
}

TEST_CASE("costs of a batch grow with its size, and two batches have to fit") {
  PipelineModel model = lane_bound();
  const WhatIf what_if = recorded(model);
  for (const char* change : {"batch.size=10", "batch.size=16", "batch.size=64"})
    CHECK_MESSAGE(near(what_if.predict(change).frames_per_s, 10, 0.05), change);
}

TEST_CASE("smaller teams make each lane slower") {
  PipelineModel model = lane_bound();
  for (auto& stage : model.lane_stages) stage.mean = {2 * stage.mean.core_s, 2};
  model.workers = 4;
  model.cores = 3;
  const WhatIf what_if = recorded(model, 2);
  // Two lanes with one thread each do what one lane with two threads did.
  CHECK(near(what_if.predict("threads.lanes=2").frames_per_s, 10, 0.1));
  // With cores for both, each lane keeps its team.
  model.cores = 6;
  CHECK(near(recorded(model, 2).predict("threads.lanes=2").frames_per_s, 20, 0.05));
}

TEST_CASE("the table has the best change first") {
  const auto table = recorded(lane_bound()).table();
  REQUIRE(table.size() > 8);
  CHECK(table.front().change == "segment x2");
  CHECK(table.front().label == "`segment` twice as fast");
  CHECK(std::ranges::is_sorted(table, std::ranges::greater(), &Prediction::frames_per_s));
  CHECK(std::ranges::all_of(
      table, [](const Prediction& it) { return it.low < it.frames_per_s && it.frames_per_s < it.high; }));
}

TEST_CASE("a change that cannot be read is refused with what is known") {
  const WhatIf what_if = recorded(lane_bound());
  const auto message = [&](const std::string& change) -> std::string {
    try {
      (void)what_if.predict(change);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  CHECK(message("segmnt x2").find("it has input, read, decode, detect, segment, encode, commit") != std::string::npos);
  CHECK(message("faster").find("STAGE xN or OPTION=N") != std::string::npos);
  CHECK(message("gate.memory=4").find("is not known") != std::string::npos);
  CHECK(message("gate.frames=1").find("at least 2") != std::string::npos);
  for (const char* change :
       {"", "=", " x2", "segment x0", "segment x-1", "segment x1e-9", "cores=1e-9", "threads.workers=5000",
        "segment xnan", "segment x2x", "threads.workers=0", "threads.workers=1.5", "threads.workers=1e99", "others=1",
        "cores=0", "cores=inf", "gpus=-1"})
    CHECK_MESSAGE(message(change) != "accepted", change);
}

TEST_CASE("services that began before the window are not replayed") {
  const Outcome outcome = simulate(lane_bound());
  Snapshot begun = outcome.begun, finished = outcome.finished;
  // The source waited for the models inside its first call.
  begun.time_ns = 3'000'000'000;
  finished.time_ns += begun.time_ns;
  for (auto* reading : {&finished.input, &finished.resources[0].total, &finished.resources[3].total}) {
    for (auto& sample : reading->samples) sample.begun_ns += begun.time_ns;
  }
  for (const int resource : {1, 2}) {
    for (auto& part : finished.resources[static_cast<std::size_t>(resource)].parts)
      for (auto& sample : part.samples) sample.begun_ns += begun.time_ns;
  }
  finished.input.samples.front() = {0, 3'000'000'000};
  const auto recording = recording_of(finished - begun, {1, 1, 0});
  REQUIRE(recording);
  CHECK(recording->model.input.recorded.size() == finished.input.samples.size() - 1);
  CHECK(WhatIf(*recording).mismatch() < 0.01);
}

TEST_CASE("a run without a GPU has no prediction for GPUs") {
  CHECK_THROWS_WITH_AS((void)recorded(lane_bound()).predict("gpus=2"), "what-if gpus: this run used no GPU",
                       std::invalid_argument);
}

TEST_CASE("a pipeline that cannot move is an error, not an endless loop") {
  PipelineModel model = lane_bound();
  model.batch = 4;
  model.admission = 2;
  CHECK_THROWS_AS((void)simulate(model), std::logic_error);
}

TEST_CASE("a window without work has no recording") {
  CHECK_FALSE(recording_of(Snapshot{}, {}));
  Outcome outcome = simulate(lane_bound());
  Snapshot window = outcome.finished - outcome.begun;
  window.resources[0].total.samples.clear();
  CHECK_FALSE(recording_of(window, {}));
}

TEST_CASE("several changes are one prediction, with the latency of frames") {
  const WhatIf what_if = recorded(lane_bound());
  const auto both = what_if.predict("segment x2, threads.workers=2");
  CHECK(near(both.frames_per_s, 1 / 0.06, 0.03));  // the lane needs 0.06 s
  CHECK(both.label == "`segment` twice as fast, threads.workers: 2");
  // Sixteen frames are in flight, so by Little's law each of them takes 16 times as long as a frame of the limiting stage.
  const auto now = what_if.predict("encode x1");
  CHECK(near(now.latency_s, 1.6, 0.06));
  CHECK(near(what_if.predict("gate.frames=4").latency_s, 0.4, 0.15));
  CHECK_THROWS_AS((void)what_if.predict("segment x2,"), std::invalid_argument);
  CHECK_THROWS_WITH((void)what_if.predict("batch.size=16,gate.frames=8"),
                    "what-if gate.frames: two batches have to fit, so at least 32");
}

TEST_CASE("a later run checks the prediction of an earlier one") {
  const auto recording = [](const PipelineModel& model) {
    const Outcome outcome = simulate(model);
    return *recording_of(outcome.finished - outcome.begun, {model.batch, 1, 0});
  };
  PipelineModel later = lane_bound();
  later.lanes = 2;
  later.workers = 3;
  const auto checked = check_prediction(recording(lane_bound()), recording(later));
  REQUIRE(checked);
  CHECK(checked->prediction.label == "threads.lanes: 2, threads.workers: 3");
  CHECK(near(checked->before, 10, 0.03));
  CHECK(near(checked->after, 20, 0.05));
  CHECK(checked->inside());
  // A run that is slower for another reason is outside of the interval.
  later.lane_stages[1].mean.core_s *= 3;
  CHECK_FALSE(check_prediction(recording(lane_bound()), recording(later))->inside());
  // Other programs that have ended are a change too.
  PipelineModel beside = lane_bound();
  beside.others = 4;
  const auto alone = check_prediction(recording(beside), recording(lane_bound()));
  REQUIRE(alone);
  CHECK(alone->prediction.change == "others=0");
  CHECK(alone->inside());
  // Nothing that the model knows is different.
  CHECK_FALSE(check_prediction(recording(lane_bound()), recording(lane_bound())));
}

namespace {

constexpr std::int64_t pixel_bytes = 1'000'000;

/// Two frames at a time have memory for their pixels, from decode on.
PipelineModel memory_bound(const std::string& until) {
  PipelineModel model = lane_bound();
  model.workers = model.lanes = 4;
  model.cores = 16;
  model.frames_in_memory = 2;
  model.pixels_until = until;
  return model;
}

/// Memory for so many frames. One part of it is for files.
std::int64_t memory_for(int frames) { return frames * pixel_bytes * budget_parts / (budget_parts - 1) + budget_parts; }

Recording recording_with_memory(const PipelineModel& model) {
  const Outcome outcome = simulate(model);
  RunShape shape{model.batch, 1, 0};
  shape.memory_bytes = memory_for(model.frames_in_memory);
  shape.decoded_bytes = pixel_bytes * model.frames;
  shape.pixels_until = model.pixels_until;
  return *recording_of(outcome.finished - outcome.begun, shape);
}

}  // namespace

TEST_CASE("frames wait for memory until a stage frees the pixels of others") {
  CHECK(near(rate_of(memory_bound("decode")), 2 / 0.06, 0.03));
  CHECK(near(rate_of(memory_bound("segment")), 2 / 0.16, 0.03));
  CHECK(near(rate_of(memory_bound("encode")), 2 / 0.17, 0.03));
  CHECK(near(rate_of(memory_bound("commit")), 2 / 0.17, 0.03));
}

TEST_CASE("more memory has the same effect in a prediction as in a run") {
  for (const char* until : {"decode", "segment", "encode", "commit"}) {
    CAPTURE(until);
    PipelineModel model = memory_bound(until);
    model.spread = 0.4;
    model.frames = 600;
    const Recording recording = recording_with_memory(model);
    CHECK(recording.model.frames_in_memory == 2);
    const WhatIf what_if(recording);
    CHECK(what_if.mismatch() < 0.1);
    for (const int frames : {3, 4, 16}) {
      const Prediction predicted = what_if.predict("gate.memory=" + std::to_string(memory_for(frames)));
      model.frames_in_memory = frames;
      const double real = rate_of(model);
      CHECK(near(predicted.frames_per_s, real, 0.06));
      CHECK(predicted.low < real);
      CHECK(real < predicted.high);
    }
  }
}

TEST_CASE("sizes of memory have units, and two batches have to fit") {
  const WhatIf what_if(recording_with_memory(memory_bound("segment")));
  const auto rate = [&](const std::string& change) { return what_if.predict(change).frames_per_s; };
  CHECK(rate("gate.memory=8M") == rate("gate.memory=8388608"));
  CHECK(rate("gate.memory=0.5G") == rate("gate.memory=512M"));
  CHECK(what_if.predict("gate.memory=8M").label == "gate.memory: 8M");
  CHECK_THROWS_WITH((void)rate("gate.memory=2M"), "what-if gate.memory: two batches have to fit, so at least 3M");
  CHECK_NOTHROW((void)rate("gate.memory=3M"));
  for (const char* change : {"gate.memory=0", "gate.memory=-1", "gate.memory=M", "gate.memory=1X", "gate.memory=1MM",
                             "gate.memory=1e30", "gate.memory=9e9T", "threads.workers=1k"})
    CHECK_THROWS_AS((void)rate(change), std::invalid_argument);
  // Larger batches need more memory, and get it, as they get more frames in flight.
  CHECK_NOTHROW((void)rate("batch.size=8"));
  CHECK_THROWS_WITH((void)WhatIf(*recording_of(simulate(lane_bound()).finished, {1, 1, 0})).predict("gate.memory=4G"),
                    "what-if gate.memory: this run decoded no pictures, so their size is not known");
}

TEST_CASE("memory is in the table only if it holds frames back, and a later run checks it") {
  const auto in_table = [](const Recording& recording) {
    return std::ranges::any_of(WhatIf(recording).table(),
                               [](const Prediction& it) { return it.change.starts_with("gate.memory="); });
  };
  PipelineModel model = memory_bound("segment");
  const Recording before = recording_with_memory(model);
  CHECK(in_table(before));
  model.frames_in_memory = 64;
  const Recording after = recording_with_memory(model);
  CHECK_FALSE(in_table(after));
  const auto checked = check_prediction(before, after);
  REQUIRE(checked);
  CHECK(checked->prediction.change == "gate.memory=" + std::to_string(memory_for(64)));
  CHECK(checked->inside());
}
