#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/statistics.hpp"

namespace millrace {

/// What one item costs in one stage. It computes first, then launches work of the GPU, then uses the disk, then waits.
struct Cost {
  double core_s = 0;    ///< on cores, summed over its threads
  double threads = 1;   ///< that compute at the same time, at least 1; a mean, so it can be a fraction
  double device_s = 0;  ///< on a GPU that computes for nobody else
  double wait_s = 0;    ///< for a file, a client or another program, on no core
  double launch_s = 0;  ///< on a core, to launch the work of the GPU, which begins to work meanwhile
  double disk_s = 0;    ///< on a disk that works for nobody else
};

/// The costs of the items of one stage: drawn from `recorded`, or around `mean` if nothing was recorded.
struct StageCosts {
  std::string name;
  Cost mean{};
  std::vector<Cost> recorded{};
};

/// A pipeline and the machine that it runs on.
struct PipelineModel {
  StageCosts input{"input"}, read{"read"}, commit{"commit"};  ///< input and read: of a frame; commit: of a batch
  std::vector<StageCosts> frame_stages, lane_stages, batch_stages;
  int frames = 400, batch = 1;
  int admission = 16;  ///< frames in flight
  /// Frames that hold pixels at a time, after `read` until the end of the stage `pixels_until`. 0: no limit.
  int frames_in_memory = 0;
  std::string pixels_until = "commit";
  int read_threads = 4, workers = 1, lanes = 1;
  int gpus = 1;              ///< lanes are on them in turn
  double worker_weight = 1;  ///< share of a worker's thread when threads compete for cores; others have 1
  double cores = 2;
  double others = 0;    ///< threads of other programs that always want a core; a mean, so it can be a fraction
  double spread = 0.3;  ///< of the cost of an item around the mean of its stage: standard deviation / mean
  std::uint64_t seed = 1;
};

/// What a run of the pipeline gives: its rate, and what the meters of the program say about it.
struct Outcome {
  double frames_per_s = 0;
  Snapshot begun, finished;
};

/// Simulates a run, event by event, with a clock of its own and the meters of the program.
/// - Cores are shared among all threads that want one, by weight; no thread gets more than one.
/// - A GPU is shared evenly among the lanes that use it. It works at most on what was launched.
/// - There is one disk. It is shared evenly among all that use it.
/// - The costs of an item depend on the seed, its number and the stage alone. So two pipelines can be compared pair by
///   pair.
/// - Memory is simulated by frames, as if all had the same size. `read.ahead` never holds a frame back.
[[nodiscard]] Outcome simulate(const PipelineModel& pipeline);

}  // namespace millrace
