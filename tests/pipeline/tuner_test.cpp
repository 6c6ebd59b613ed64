#include "pipeline/tuner.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

using namespace millrace;

namespace {

/// A pipeline whose lane costs a fixed time for each call and a time for each frame. The tuner does not know this.
struct Machine {
  double per_call_s = 0.08, per_frame_s = 0.01, host_s = 0.001;
  int most_batch_lanes = 1000;  ///< batch x lanes that fit into memory
  double of_mode = 1;           ///< how much faster the second mode is
  int runs = 0;

  Trial run(const std::vector<Knob>& knobs, const TunerPoint& point) {
    ++runs;
    const auto value = [&](std::size_t knob) { return std::stoi(knobs[knob].values[point[knob]]); };
    PipelineModel model;
    model.spread = 0;
    model.cores = 8;
    model.workers = 4;
    model.batch = value(0);
    model.lanes = value(1);
    model.admission = 4 * model.batch * model.lanes;
    model.frames = 40 * model.batch;
    const double call_s = (per_call_s + per_frame_s * model.batch) / (point[2] == 1 ? of_mode : 1);
    model.frame_stages = {{"decode", {0.001}}};
    model.lane_stages = {{"segment", {host_s, 1, call_s}}};
    model.batch_stages = {{"encode", {0.001 * model.batch}}};
    if (model.batch * model.lanes > most_batch_lanes) return {point, false};
    const Outcome outcome = simulate(model);
    const Snapshot window = outcome.finished - outcome.begun;
    return {point,
            true,
            true,
            outcome.frames_per_s,
            window.latency.quantile_ns(0.95) / 1e9,
            recording_of(window, {model.batch, 1, 0})};
  }
};

const std::vector<Knob> knobs{{"batch.size", {"1", "2", "4", "8", "16"}, true, 0.1, true},
                              {"threads.lanes", {"1", "2", "3"}, true, 0.06, true},
                              {"mode", {"1", "2"}, false, 0.3, false, false}};

Tuner tuned(
    Machine& machine, const TunerPoint& start, std::optional<double> most_latency_s, std::size_t trials,
    const Tuner::Allowed& allowed = [](const TunerPoint&) { return true; }) {
  Tuner tuner(knobs, start, most_latency_s, allowed);
  while (tuner.trials().size() < trials) {
    const auto point = tuner.propose();
    if (!point) break;
    CHECK(allowed(*point));
    CHECK(tuner.tried(*point) == nullptr);
    tuner.add(machine.run(knobs, *point));
  }
  return tuner;
}

}  // namespace

TEST_CASE("the first trial is the start, and larger batches are found where calls have a fixed cost") {
  Machine machine;
  Tuner tuner = tuned(machine, {0, 0, 0}, std::nullopt, 8);
  CHECK(tuner.trials().front().point == TunerPoint{0, 0, 0});
  REQUIRE(tuner.best() != nullptr);
  CHECK(tuner.best()->point[0] == 4);
  CHECK(tuner.best()->frames_per_s > 5 * tuner.trials().front().frames_per_s);
}

TEST_CASE("an option that the model does not know is tried, and its effect is known at other points") {
  Machine machine;
  machine.of_mode = 2;
  Tuner tuner = tuned(machine, {2, 0, 0}, std::nullopt, 8);
  REQUIRE(tuner.best() != nullptr);
  CHECK(tuner.best()->point[2] == 1);
  // Without a trial there, the other mode is still known to be slower.
  int compared = 0;
  for (std::size_t batch = 0; batch < 5; ++batch) {
    const TunerPoint first{batch, 0, 0}, second{batch, 0, 1};
    if (tuner.tried(first) != nullptr || tuner.tried(second) != nullptr) continue;
    CHECK(tuner.guess(second)->frames_per_s > 1.3 * tuner.guess(first)->frames_per_s);
    ++compared;
  }
  CHECK(compared > 0);
}

TEST_CASE("another mode is first tried at the best point") {
  Machine machine;
  machine.of_mode = 2;
  const Tuner tuner = tuned(machine, {2, 0, 0}, std::nullopt, 8);
  const auto mode = [](const Trial& trial) { return trial.point[2]; };
  const auto first = std::ranges::find(tuner.trials(), 1U, mode);
  REQUIRE(first != tuner.trials().end());
  const auto best = std::ranges::max_element(tuner.trials().begin(), first, {}, &Trial::frames_per_s);
  CHECK(first->point == TunerPoint{best->point[0], best->point[1], 1});
}

TEST_CASE("a mode is predicted from its own recording, so its gain may differ from point to point") {
  // One lane computes half of the time on its core. With three lanes, the first mode is held back by the GPU alone.
  Machine machine;
  machine.per_call_s = machine.host_s = 0.05;
  machine.per_frame_s = 0;
  machine.of_mode = 10;
  Tuner tuner(knobs, {0, 0, 0}, std::nullopt, [](const TunerPoint&) { return true; });
  tuner.add(machine.run(knobs, {0, 0, 0}));
  tuner.add(machine.run(knobs, {0, 0, 1}));
  const auto gain = [&](std::size_t lanes) {
    return machine.run(knobs, {0, lanes, 1}).frames_per_s / machine.run(knobs, {0, lanes, 0}).frames_per_s;
  };
  CHECK(gain(2) > 1.5 * gain(0));
  CHECK(tuner.guess({0, 2, 1})->frames_per_s / tuner.guess({0, 2, 0})->frames_per_s ==
        doctest::Approx(gain(2)).epsilon(0.05));
}

TEST_CASE("a rate that was measured too high is corrected by its neighbours") {
  // The lanes wait for the GPU, so their number has no effect.
  Machine machine;
  Tuner tuner(knobs, {4, 0, 0}, std::nullopt, [](const TunerPoint&) { return true; });
  const double true_rate = machine.run(knobs, {4, 1, 0}).frames_per_s;
  for (const auto& [lanes, of_rate] : {std::pair{0U, 1.0}, {1U, 1.05}, {2U, 1.0}}) {
    Trial trial = machine.run(knobs, {4, lanes, 0});
    trial.frames_per_s *= of_rate;
    tuner.add(trial);
  }
  CHECK(tuner.guess({4, 1, 0})->frames_per_s < 0.995 * 1.05 * true_rate);
  CHECK(tuner.guess({4, 1, 0})->frames_per_s > true_rate);
}

TEST_CASE("points at least as large as one that did not fit are not tried, and the largest that fits is found") {
  Machine machine;
  machine.most_batch_lanes = 8;
  Tuner tuner = tuned(machine, {0, 0, 0}, std::nullopt, 12);
  CHECK(std::ranges::any_of(tuner.trials(), [](const Trial& trial) { return !trial.fits; }));
  for (std::size_t i = 0; i < tuner.trials().size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Trial& earlier = tuner.trials()[j];
      const TunerPoint& point = tuner.trials()[i].point;
      // The other mode may take less memory.
      if (!earlier.fits && point[2] == earlier.point[2])
        CHECK_FALSE((point[0] >= earlier.point[0] && point[1] >= earlier.point[1]));
    }
  }
  REQUIRE(tuner.best() != nullptr);
  CHECK(tuner.best()->point[0] == 3);  // batches of 8
}

TEST_CASE("if the start does not fit, nothing is known and the search ends") {
  Machine machine;
  machine.most_batch_lanes = 4;
  Tuner tuner = tuned(machine, {4, 2, 0}, std::nullopt, 8);
  CHECK(tuner.trials().size() == 1);
  CHECK(tuner.best() == nullptr);
}

TEST_CASE("the best trial keeps the latency, even if others are faster") {
  Machine machine;
  Tuner free = tuned(machine, {4, 2, 0}, std::nullopt, 4);
  const double bound = 0.5 * free.trials().front().latency_s;
  Tuner bounded = tuned(machine, {4, 2, 0}, bound, 12);
  REQUIRE(bounded.best() != nullptr);
  CHECK(bounded.best()->latency_s <= bound);
  CHECK(bounded.best()->frames_per_s < free.best()->frames_per_s);
  // Nothing keeps an impossible bound.
  CHECK(tuned(machine, {4, 2, 0}, 1e-6, 4).best() == nullptr);
}

TEST_CASE("trials that are not usable are never the best, and points that are not allowed are not guessed") {
  Machine machine;
  const auto allowed = [](const TunerPoint& point) { return point[0] < 2; };
  Tuner tuner = tuned(machine, {0, 0, 0}, std::nullopt, 4, allowed);
  CHECK_FALSE(tuner.guess({4, 0, 0}));
  Trial other = machine.run(knobs, {0, 0, 1});
  other.frames_per_s = 1e6;
  other.usable = false;
  tuner.add(other);
  CHECK(tuner.best()->frames_per_s < 1e6);
}

TEST_CASE("a mode whose results are not usable, or that fails, is not tried again") {
  Machine machine;
  machine.of_mode = 3;
  for (const bool fails : {false, true}) {
    Tuner tuner(knobs, {1, 0, 0}, std::nullopt, [](const TunerPoint&) { return true; });
    tuner.add(machine.run(knobs, {1, 0, 0}));
    Trial other = machine.run(knobs, {1, 0, 1});
    other.usable = false;
    if (fails) other = {other.point, true, false};
    tuner.add(other);
    for (int i = 0; i < 6; ++i) {
      const auto point = tuner.propose();
      if (!point) break;
      CHECK((*point)[2] == 0);
      tuner.add(machine.run(knobs, *point));
    }
    // The failure says nothing about memory.
    CHECK(tuner.best()->point[0] == 4);
  }
}

TEST_CASE("if memory runs out in a mode, smaller points of the mode are still tried") {
  Machine machine;
  machine.of_mode = 3;
  Tuner tuner(knobs, {1, 0, 0}, std::nullopt, [](const TunerPoint&) { return true; });
  tuner.add(machine.run(knobs, {1, 0, 0}));
  tuner.add({{4, 0, 1}, false, false});
  bool tried = false;
  for (int i = 0; i < 12 && !tried; ++i) {
    const auto point = tuner.propose();
    if (!point) break;
    tried = (*point)[2] == 1;
    tuner.add(machine.run(knobs, *point));
  }
  CHECK(tried);
}

TEST_CASE("without a recording nothing is predicted, and the search ends") {
  Tuner tuner(knobs, {0, 0, 0}, std::nullopt, [](const TunerPoint&) { return true; });
  REQUIRE(tuner.propose());
  tuner.add({{0, 0, 0}, true, true, 3, 1});
  CHECK_FALSE(tuner.guess({1, 0, 0}));
  CHECK_FALSE(tuner.propose());
  CHECK(tuner.best() != nullptr);
}
