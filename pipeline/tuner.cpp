#include "pipeline/tuner.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace millrace {
namespace {

constexpr double of_runs = 0.02;                // standard deviation between equal runs
constexpr double of_interaction = 0.2;          // variance of what knobs do together, as a share of their own
constexpr double shortest_s = 1e-6;             // latency
constexpr double worth_a_trial = 0.002;         // expected improvement of the rate
constexpr double most_doubt = 0.15;             // more would send trials to the far corners, which are rarely the best
constexpr double fits_in_all_likelihood = 0.9;  // if nothing is known about larger points
constexpr double hardly_fits = 0.1;             // if a trial that is no larger did not fit, with another precision

double normal_density(double z) { return std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi); }
double normal_probability(double z) { return std::erfc(-z / std::numbers::sqrt2) / 2; }

}  // namespace

Tuner::Tuner(std::vector<Knob> knobs, TunerPoint start, std::optional<double> most_latency_s, Allowed allowed)
    : knobs_(std::move(knobs)),
      start_(std::move(start)),
      most_latency_s_(most_latency_s),
      allowed_(std::move(allowed)) {
  if (start_.size() != knobs_.size()) throw std::logic_error("a tuner's start has one value for each knob");
}

void Tuner::add(Trial trial) {
  trials_.push_back(std::move(trial));
  learn();
}

const Trial* Tuner::tried(const TunerPoint& point) const {
  const auto it = std::ranges::find(trials_, point, &Trial::point);
  return it == trials_.end() ? nullptr : &*it;
}

bool Tuner::good(const Trial& trial) const {
  return trial.fits && trial.usable && (!most_latency_s_ || trial.latency_s <= *most_latency_s_);
}

// The values of the knobs without an order, such as a precision.
TunerPoint Tuner::mode_of(const TunerPoint& point) const {
  TunerPoint mode;
  for (std::size_t i = 0; i < knobs_.size(); ++i) {
    if (!knobs_[i].ordered) mode.push_back(point[i]);
  }
  return mode;
}

// A recording has the costs of its own mode. So a point is predicted from a trial of its mode, if there is one.
Tuner::Reference& Tuner::reference_of(const TunerPoint& point) {
  const auto it = references_.find(mode_of(point));
  return it == references_.end() ? *first_reference_ : it->second;
}

std::string Tuner::changes(const TunerPoint& from, const TunerPoint& to) const {
  std::string text;
  for (std::size_t i = 0; i < knobs_.size(); ++i) {
    if (from[i] == to[i] || !knobs_[i].predicted) continue;
    text += (text.empty() ? "" : ",") + knobs_[i].option + "=" + knobs_[i].values[to[i]];
  }
  return text;
}

// The logarithms of rate and latency by the what-if model alone.
Tuner::Logs Tuner::predicted(const TunerPoint& point) {
  Reference& reference = reference_of(point);
  const Trial& trial = *reference.trial;
  Logs logs{std::log(trial.frames_per_s), std::log(std::max(trial.latency_s, shortest_s))};
  const std::string change = changes(trial.point, point);
  if (change.empty()) return logs;
  const auto [cached, is_new] = reference.cached.try_emplace(point);
  if (is_new) {
    const Prediction prediction = reference.model->predict(change);
    const Recording& recording = reference.model->recording();
    cached->second = {std::log(prediction.frames_per_s / recording.frames_per_s),
                      recording.latency_s > 0 ? std::log(prediction.latency_s / recording.latency_s) : 0};
  }
  return {logs.rate + cached->second.rate, logs.latency + cached->second.latency};
}

// Each step away from the reference adds an error of its own. So two points share the errors of the steps that they have
// in common. Points of two modes have two references: they may take the same step in opposite directions.
double Tuner::covariance(const TunerPoint& a, const TunerPoint& b) {
  const TunerPoint& from_a = reference_of(a).trial->point;
  const TunerPoint& from_b = reference_of(b).trial->point;
  double sum = 0;
  for (std::size_t i = 0; i < knobs_.size(); ++i) {
    double common = 0;
    if (!knobs_[i].ordered) {
      common = a[i] == b[i] && a[i] != from_a[i] ? 1 : 0;
    } else {
      const auto low = std::max(std::min(a[i], from_a[i]), std::min(b[i], from_b[i]));
      const auto high = std::min(std::max(a[i], from_a[i]), std::max(b[i], from_b[i]));
      if (high > low) common = static_cast<double>(high - low);
      if ((a[i] > from_a[i]) != (b[i] > from_b[i])) common = -common;
    }
    sum += knobs_[i].doubt * knobs_[i].doubt * common;
  }
  // What several knobs do together is no sum, and is known for the same point only.
  if (a == b) sum *= 1 + of_interaction;
  // The reference itself was measured with an error, which all its predictions share.
  return from_a == from_b ? sum + of_runs * of_runs : sum;
}

// The best trial of each mode. Where none is good, the fastest still has the costs of the mode.
void Tuner::choose_references() {
  const auto better = [&](const Trial& a, const Trial& b) {
    return std::pair(good(a), a.frames_per_s) > std::pair(good(b), b.frames_per_s);
  };
  for (const Trial& trial : trials_) {
    if (trial.frames_per_s <= 0 || !trial.recording) continue;
    Reference& reference = references_[mode_of(trial.point)];
    if (reference.trial == &trial || (reference.trial != nullptr && !better(trial, *reference.trial))) continue;
    reference.trial = &trial;
    reference.model.emplace(*trial.recording);
    reference.cached.clear();
  }
  for (auto& [mode, reference] : references_) {
    if (first_reference_ == nullptr || better(*reference.trial, *first_reference_->trial))
      first_reference_ = &reference;
  }
}

const Trial* Tuner::best() const {
  const Trial* found = nullptr;
  for (const Trial& trial : trials_) {
    if (good(trial) && (found == nullptr || trial.frames_per_s > found->frames_per_s)) found = &trial;
  }
  return found;
}

void Tuner::learn() {
  choose_references();
  if (first_reference_ == nullptr) return;
  known_.clear();
  factor_.clear();
  std::vector<Logs> solved;
  // Cholesky's factor, and the forward substitution on the way.
  for (const Trial& trial : trials_) {
    if (!trial.fits || trial.frames_per_s <= 0) continue;
    if (reference_of(trial.point).trial == &trial) continue;  // predicted from itself
    const std::size_t n = known_.size();
    std::vector<double> row(n + 1);
    const Logs expected = predicted(trial.point);
    Logs rest{std::log(trial.frames_per_s) - expected.rate,
              std::log(std::max(trial.latency_s, shortest_s)) - expected.latency};
    double diagonal = covariance(trial.point, trial.point) + of_runs * of_runs;
    for (std::size_t i = 0; i < n; ++i) {
      double sum = covariance(trial.point, known_[i]);
      for (std::size_t k = 0; k < i; ++k) sum -= row[k] * factor_[i][k];
      row[i] = sum / factor_[i][i];
      diagonal -= row[i] * row[i];
      rest = {rest.rate - row[i] * solved[i].rate, rest.latency - row[i] * solved[i].latency};
    }
    row[n] = std::sqrt(std::max(diagonal, of_runs * of_runs));
    solved.push_back({rest.rate / row[n], rest.latency / row[n]});
    known_.push_back(trial.point);
    factor_.push_back(std::move(row));
  }
  weights_ = std::move(solved);
}

std::optional<Tuner::Guess> Tuner::guess(const TunerPoint& point) {
  if (first_reference_ == nullptr || !allowed_(point)) return std::nullopt;
  Logs logs = predicted(point);
  double variance = covariance(point, point);
  std::vector<double> row(known_.size());
  for (std::size_t i = 0; i < known_.size(); ++i) {
    double sum = covariance(point, known_[i]);
    for (std::size_t k = 0; k < i; ++k) sum -= row[k] * factor_[i][k];
    row[i] = sum / factor_[i][i];
    logs = {logs.rate + row[i] * weights_[i].rate, logs.latency + row[i] * weights_[i].latency};
    variance -= row[i] * row[i];
  }
  return Guess{std::exp(logs.rate), std::exp(logs.latency), std::sqrt(std::max(variance, of_runs * of_runs))};
}

// Memory grows with every knob that takes memory. Between the largest trial that fits and the smallest that does not,
// the chance falls evenly, so trials bisect to the limit.
double Tuner::chance_to_fit(const TunerPoint& point) const {
  const auto no_larger = [&](const TunerPoint& a, const TunerPoint& b) {
    for (std::size_t i = 0; i < knobs_.size(); ++i) {
      if (knobs_[i].takes_memory && a[i] > b[i]) return false;
    }
    return true;
  };
  // Values without an order, such as precisions, may take other memory.
  const auto alike = [&](const TunerPoint& other) {
    for (std::size_t i = 0; i < knobs_.size(); ++i) {
      if (!knobs_[i].ordered && point[i] != other[i]) return false;
    }
    return true;
  };
  const auto size = [&](const TunerPoint& of) {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < knobs_.size(); ++i) sum += knobs_[i].takes_memory ? of[i] : 0;
    return static_cast<double>(sum);
  };
  double fitted = -1, failed = -1;  // sizes
  bool fits_otherwise = false, fails_otherwise = false;
  for (const Trial& trial : trials_) {
    if (trial.fits && trial.frames_per_s <= 0) continue;  // it failed for another reason
    const bool smaller_than_fitting = trial.fits && no_larger(point, trial.point);
    const bool larger_than_failing = !trial.fits && no_larger(trial.point, point);
    if (alike(trial.point) && smaller_than_fitting) return 1;
    if (alike(trial.point) && larger_than_failing) return 0;
    fits_otherwise = fits_otherwise || smaller_than_fitting;
    fails_otherwise = fails_otherwise || larger_than_failing;
    if (trial.fits) fitted = std::max(fitted, size(trial.point));
    if (!trial.fits) failed = failed < 0 ? size(trial.point) : std::min(failed, size(trial.point));
  }
  if (fails_otherwise) return hardly_fits;
  if (fits_otherwise || failed < 0 || size(point) <= fitted) return fits_in_all_likelihood;
  return std::clamp(1 - (size(point) - fitted) / std::max(failed - fitted, 1.0), hardly_fits, fits_in_all_likelihood);
}

bool Tuner::rejected(const TunerPoint& point) const {
  return std::ranges::any_of(trials_, [&](const Trial& trial) {
    // Where memory ran out, a smaller point may still fit.
    if (trial.usable || !trial.fits) return false;
    for (std::size_t i = 0; i < knobs_.size(); ++i) {
      if (!knobs_[i].ordered && point[i] == trial.point[i] && point[i] != start_[i]) return true;
    }
    return false;
  });
}

// The first trial of a mode is at the best point, so that nothing else differs. If memory runs out there, the next one
// may be anywhere.
bool Tuner::comparable(const TunerPoint& point) const {
  const Trial* const found = best();
  if (found == nullptr) return true;
  TunerPoint same = found->point;
  for (std::size_t i = 0; i < knobs_.size(); ++i) {
    if (!knobs_[i].ordered) same[i] = point[i];
  }
  if (point == same) return true;
  const TunerPoint mode = mode_of(point);
  return std::ranges::any_of(trials_, [&](const Trial& trial) { return mode_of(trial.point) == mode; });
}

// The expected improvement of the logarithm of the rate. While no trial keeps the limit, the chance to keep it.
double Tuner::score(const TunerPoint& point) {
  if (!allowed_(point) || tried(point) != nullptr || rejected(point)) return 0;
  if (!comparable(point)) return 0;
  const auto guessed = guess(point);
  if (!guessed) return 0;
  double chance = chance_to_fit(point);
  if (most_latency_s_ && guessed->latency_s > 0)
    chance *= normal_probability(std::log(*most_latency_s_ / guessed->latency_s) / guessed->doubt);
  const Trial* const found = best();
  if (found == nullptr) return chance;
  // The best trial is often one that was measured too fast, so it is compared by its guess too.
  const auto of_best = guess(found->point);
  const double gain = std::log(guessed->frames_per_s / (of_best ? of_best->frames_per_s : found->frames_per_s));
  const double doubt = std::min(guessed->doubt, most_doubt);
  const double z = gain / doubt;
  return chance * doubt * (z * normal_probability(z) + normal_density(z));
}

// Climbs from the start and from the best trial: one knob at a time gets its best value, until none improves.
std::optional<TunerPoint> Tuner::propose() {
  if (trials_.empty()) return start_;
  const Trial* const found = best();
  TunerPoint best_point;
  double best_score = found == nullptr ? 0 : worth_a_trial;
  std::vector<TunerPoint> starts{start_};
  if (found != nullptr) {
    starts.push_back(found->point);
    for (std::size_t knob = 0; knob < knobs_.size(); ++knob) {
      for (std::size_t value = 0; value < knobs_[knob].values.size() && !knobs_[knob].ordered; ++value) {
        starts.push_back(found->point);
        starts.back()[knob] = value;
      }
    }
  }
  for (TunerPoint point : starts) {
    double here = score(point);
    for (bool improved = true; improved;) {
      improved = false;
      for (std::size_t knob = 0; knob < knobs_.size(); ++knob) {
        for (std::size_t value = 0; value < knobs_[knob].values.size(); ++value) {
          TunerPoint next = point;
          next[knob] = value;
          const double there = score(next);
          if (there <= here) continue;
          here = there;
          point = next;
          improved = true;
        }
      }
    }
    if (here > best_score) {
      best_score = here;
      best_point = point;
    }
  }
  return best_point.empty() ? std::nullopt : std::optional(best_point);
}

}  // namespace millrace
