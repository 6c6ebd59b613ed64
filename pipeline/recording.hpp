#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/simulation.hpp"

namespace millrace {

inline constexpr int replayed_batches = 60;       ///< of a recording, at most; more do not change the rate
inline constexpr double latency_quantile = 0.95;  ///< of Recording::latency_s

/// An option that limits the rows of a call of a model, and what the calls of the run say about it.
struct RowLimit {
  std::string option;          ///< "segment.box_batch"
  std::string stage;           ///< that makes the calls
  int value = 1;               ///< of the option
  int most = 1;                ///< rows that the model takes in a call
  double rows = 0, calls = 0;  ///< of a batch, means
  /// On the lane's thread, for a call, however many rows it has. Nothing if all calls had about the same number.
  std::optional<double> call_s{};
};

/// A run as the what-if model replays it: its costs and limits, and the rate that it had.
struct Recording {
  PipelineModel model;
  int team = 1;             ///< threads of a model call on a CPU
  double frames_per_s = 0;  ///< measured
  double latency_s = 0;     ///< measured: 95 % of the frames took no longer from admission to commit
  double memory_bytes = 0;  ///< for the files and pixels of all frames in flight (gate.memory); 0: not known
  double pixel_bytes = 0;   ///< mean of a frame; 0: not known
  std::vector<RowLimit> row_limits{};
  double disk_stall = 0;  ///< share of the time in which some thread of the machine waited for a disk
};

/// The numbers of a run that its snapshots do not have.
struct RunShape {
  int batch = 1;
  int team = 1;
  int worker_nice = 0;
  std::int64_t memory_bytes = 0;        ///< as in Recording
  std::int64_t decoded_bytes = 0;       ///< pixels of all frames of the window
  std::string pixels_until = "commit";  ///< the stage that frees them
  std::vector<RowLimit> row_limits{};
};

/// Makes a recording of the window. Nothing if the window has too little to replay: no commit, or a stage without items.
/// The costs have no time without a core, because the replay makes it anew. In the model, other programs have the number
/// of threads that takes the cores which others took in the window.
[[nodiscard]] std::optional<Recording> recording_of(const Snapshot& window, const RunShape& shape);

/// All stages of a pipeline, with the input, the reads and the commit, in their order.
[[nodiscard]] std::vector<StageCosts*> stages_of(PipelineModel& model);

/// How many frames of this mean size have their pixels in memory (gate.memory), from 1 to 1,000,000.
[[nodiscard]] int frames_in_memory(double memory_bytes, double pixel_bytes);
/// The minimum of gate.memory for so many frames, in whole MiB so that a message is easy to read.
[[nodiscard]] std::int64_t memory_for_frames(int frames, double pixel_bytes);

}  // namespace millrace
