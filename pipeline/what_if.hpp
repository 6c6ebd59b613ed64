#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/recording.hpp"

namespace millrace {

/// The predicted rate after a change, in frames per second, with an interval that holds nine of ten real rates.
struct Prediction {
  std::string change;  ///< as predict() reads it
  std::string label;   ///< for people
  double frames_per_s = 0, low = 0, high = 0;
  double latency_s = 0;  ///< as in Recording; without an interval
};

/// Predicts what changes of a recorded run would bring. It replays the recording with and without the change and
/// multiplies the measured rate by the ratio of both. The errors of the replay that both have in common cancel.
///
/// If reads waited for a disk, the recording does not tell whether the disk could do more. Then there are two models:
/// each read takes its time however many there are, or the disk is full and reads share it. The prediction is the
/// geometric mean, and the interval covers both.
class WhatIf {
 public:
  explicit WhatIf(Recording recording);

  /// `change` is "STAGE xN" (N times as fast), "OPTION=N" or "others=0"; or several of them, separated by commas.
  /// Options are threads.workers, threads.lanes, read.threads, gate.frames, gate.memory, batch.size, cores, gpus and
  /// those of Recording::row_limits.
  /// Costs of a batch grow with its size, which is true on CPUs.
  /// Throws std::invalid_argument that names the change and what is known.
  [[nodiscard]] Prediction predict(std::string_view change) const;

  /// The changes that the report shows, the highest rate first. Each stage and the input become twice as fast. Cores,
  /// GPUs, the threads of each pool and the frames in flight double. Other programs end.
  [[nodiscard]] std::vector<Prediction> table() const;

  /// How far the replay without a change is off: 0.05 for 5 %.
  [[nodiscard]] double mismatch() const { return bases_.front().mismatch; }

  [[nodiscard]] const Recording& recording() const { return recording_; }

 private:
  struct Replayed {
    double frames_per_s = 0, latency_s = 0;
  };
  /// A model of the recorded run.
  struct Base {
    PipelineModel model{};
    std::vector<Replayed> replayed{};  // without a change, by seed
    double mismatch = 0;
  };
  static std::vector<Replayed> replay(PipelineModel model);
  void add_base(PipelineModel model);
  [[nodiscard]] Prediction predict(std::string_view change, const Base& base) const;

  Recording recording_;
  std::vector<Base> bases_;  // the first is that of the recording
};

/// A prediction from the recording of a run, and the rate that a later run had.
struct CheckedPrediction {
  Prediction prediction;
  double before = 0;  ///< frames per second of the recorded run
  double after = 0;   ///< of the later run
  [[nodiscard]] bool inside() const { return prediction.low <= after && after <= prediction.high; }
};

/// Predicts from `before` the rate with the threads, cores, batches, frames in flight and GPUs of `after`.
/// Nothing if these numbers are the same, or if the model does not allow them.
[[nodiscard]] std::optional<CheckedPrediction> check_prediction(const Recording& before, const Recording& after);

}  // namespace millrace
