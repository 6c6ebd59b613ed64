#pragma once

#include <doctest/doctest.h>

#include <cmath>

#include "pipeline/what_if.hpp"

/// A pipeline for tests of the what-if model.
namespace millrace::what_if_fixture {

/// Lanes on four cores need 0.1 s a frame, `decode` 0.06 s on one worker. All costs are the same for each frame.
inline PipelineModel lane_bound() {
  PipelineModel model;
  model.spread = 0;
  model.cores = 4;
  model.frames = 200;
  model.frame_stages = {{"decode", {0.06}}};
  model.lane_stages = {{"detect", {0.02}}, {"segment", {0.08}}};
  model.batch_stages = {{"encode", {0.01}}};
  model.read.mean = {0.0001, 1, 0, 0.001};
  model.commit.mean.core_s = 0.0001;
  return model;
}

inline WhatIf recorded(const PipelineModel& model, int team = 1) {
  const Outcome outcome = simulate(model);
  const auto recording = recording_of(outcome.finished - outcome.begun, {model.batch, team, 0});
  REQUIRE(recording);
  return WhatIf(*recording);
}

inline double rate_of(const PipelineModel& model) { return simulate(model).frames_per_s; }

inline bool near(double value, double expected, double part) { return std::abs(value / expected - 1) < part; }

}  // namespace millrace::what_if_fixture
