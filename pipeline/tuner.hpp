#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/what_if.hpp"

namespace millrace {

/// An option that a tuner may change.
struct Knob {
  std::string option;               ///< such as "batch.size"
  std::vector<std::string> values;  ///< to try, neighbours alike; numbers in ascending order
  bool predicted = true;            ///< the what-if model knows the option
  /// Standard deviation of the error of a predicted rate for each step between two values: 0.1 for 10 %.
  double doubt = 0.05;
  bool takes_memory = false;  ///< later values need more memory
  /// False: neighbours are no more alike than other values. If a trial with such a value is not usable, no other trial has
  /// this value.
  bool ordered = true;
};

/// The index of a value for each knob.
using TunerPoint = std::vector<std::size_t>;

/// A run with the values of a point.
struct Trial {
  TunerPoint point;
  bool fits = true;         ///< false: memory ran out; the figures then mean nothing
  bool usable = true;       ///< false: it failed, or a precision changes results too much; see Knob::ordered
  double frames_per_s = 0;  ///< measured; 0 if it failed
  double latency_s = 0;     ///< measured: 95 % of the frames took no longer
  std::optional<Recording> recording{};
};

/// Knob::doubt of options of a run. The model assumes how costs grow with a batch, and with lanes in the same caches. It
/// measures the costs of threads.
struct Doubts {
  static constexpr double batch = 0.1, lanes = 0.06, workers = 0.03, gate = 0.03, box_batch = 0.05, precision = 0.3;
};

/// Finds the values of options with which a pipeline is fastest, in few trials.
///
/// The what-if model predicts the rate of a point from the recording of the best trial of its mode. A mode is the values
/// of the knobs without an order. A Gaussian process learns by how much all trials differ from these predictions (kriging
/// with a trend). So it also learns about options that the model does not know. The next trial is the point with the
/// highest expected improvement (Jones, Schonlau and Welch, "Efficient Global Optimization of Expensive Black-Box
/// Functions", 1998), times the probability that it fits.
class Tuner {
 public:
  /// Which points exist; such as those in which two batches pass the gate.
  using Allowed = std::function<bool(const TunerPoint&)>;

  /// `start` is the point of the first trial, which must fit. `most_latency_s` limits Trial::latency_s; empty: only the rate counts.
  Tuner(std::vector<Knob> knobs, TunerPoint start, std::optional<double> most_latency_s, Allowed allowed);

  /// The next point to try. Nothing if no point is worth a trial: the expected improvement is below 0.2 %.
  [[nodiscard]] std::optional<TunerPoint> propose();
  void add(Trial trial);

  [[nodiscard]] const std::deque<Trial>& trials() const { return trials_; }
  /// The fastest usable trial that fits and keeps the limit; null if there is none.
  [[nodiscard]] const Trial* best() const;
  /// The measured trial at a point; null if there is none.
  [[nodiscard]] const Trial* tried(const TunerPoint& point) const;
  [[nodiscard]] const std::vector<Knob>& knobs() const { return knobs_; }

  struct Guess {
    double frames_per_s = 0, latency_s = 0;
    double doubt = 0;  ///< standard deviation of the logarithm of the rate
  };
  /// The prediction for a point; nothing if it is not allowed, or without a recording from which it follows.
  [[nodiscard]] std::optional<Guess> guess(const TunerPoint& point);

 private:
  struct Logs {
    double rate = 0, latency = 0;
  };
  /// The trial whose recording gives the predictions of a mode.
  struct Reference {
    const Trial* trial = nullptr;
    std::optional<WhatIf> model;
    std::map<TunerPoint, Logs> cached;  ///< predictions
  };
  [[nodiscard]] bool good(const Trial& trial) const;
  [[nodiscard]] TunerPoint mode_of(const TunerPoint& point) const;
  [[nodiscard]] Reference& reference_of(const TunerPoint& point);
  [[nodiscard]] Logs predicted(const TunerPoint& point);
  void choose_references();
  void learn();
  [[nodiscard]] double covariance(const TunerPoint& a, const TunerPoint& b);
  [[nodiscard]] bool rejected(const TunerPoint& point) const;
  [[nodiscard]] double chance_to_fit(const TunerPoint& point) const;
  [[nodiscard]] bool comparable(const TunerPoint& point) const;
  [[nodiscard]] double score(const TunerPoint& point);
  [[nodiscard]] std::string changes(const TunerPoint& from, const TunerPoint& to) const;

  const std::vector<Knob> knobs_;
  const TunerPoint start_;
  const std::optional<double> most_latency_s_;
  const Allowed allowed_;
  std::deque<Trial> trials_;                    // references stay valid
  std::map<TunerPoint, Reference> references_;  // by mode
  Reference* first_reference_ = nullptr;        // the best of them, for modes without a trial
  // Of the trials that fit and are no reference: their points, the triangular factor of their covariances, and the solved
  // differences.
  std::vector<TunerPoint> known_;
  std::vector<std::vector<double>> factor_;
  std::vector<Logs> weights_;
};

}  // namespace millrace
