#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/statistics.hpp"

namespace millrace::insight {

/// Mean costs of one frame or batch in one stage.
struct StageCost {
  std::string name;
  double compute_s = 0;  ///< on cores; a team of n threads needs 1/n of it
  double wait_s = 0;     ///< for a device, a file or a client, on no core
};

/// A pipeline and the machine that it runs on.
struct Pipeline {
  StageCost input{"input"}, read{"read"}, commit{"commit"};  ///< input and read: of a frame; commit: of a batch
  std::vector<StageCost> frame_stages, lane_stages, batch_stages;
  int frames = 400, batch = 1;
  int admission = 16;  ///< frames in flight
  int read_threads = 4, workers = 1, lanes = 1, team = 1;
  double worker_weight = 1;  ///< share of a worker's thread when threads compete for cores; others have 1
  double cores = 2;
  int others = 0;       ///< threads of other programs that always want a core
  double spread = 0.3;  ///< of the cost of an item: standard deviation / mean
  std::uint64_t seed = 1;
};

/// What a run of the pipeline gives: its rate, and what the meters of the program say about it.
struct Outcome {
  double frames_per_s = 0;
  Snapshot begun, finished;
};

/// Simulates a run, event by event, with a clock of its own and the meters of the program.
/// Cores are shared among all threads that want one, by weight; no thread gets more than one.
/// The costs of an item depend on the seed, its number and the stage alone. So two pipelines can be compared pair by pair.
[[nodiscard]] Outcome simulate(const Pipeline& pipeline);

}  // namespace millrace::insight
