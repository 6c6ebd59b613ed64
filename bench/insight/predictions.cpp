// How good are predictions of the what-if model? Draws pipelines, simulates a run of each, records it as the program
// does, and predicts changes. The truth is a simulation of the changed pipeline.
//
//     bench_predictions [--pipelines N] [--seed S] [--median PERCENT] [--coverage PERCENT] [--json]
//
// The model sees only the recording: samples of service times, core times, and what other programs took.
// real.py does the same with real runs.
//
// --median: exit code 1 if the median error is larger.
// --coverage: exit code 1 if a smaller part of the rates is inside its interval.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu.hpp"
#include "base/json.hpp"
#include "bench/insight/drawn.hpp"
#include "bench/insight/options.hpp"
#include "pipeline/what_if.hpp"

namespace millrace {
namespace {

struct Change {
  std::string text;
  std::function<void(PipelineModel&)> real;
};

// Two of the lanes' stages, and everything that the model knows except batches: drawn costs do not depend on their size.
std::vector<Change> changes_of(const PipelineModel& p) {
  std::vector<Change> all{
      {"decode x2", [](PipelineModel& it) { it.frame_stages.front().mean.core_s /= 2; }},
      {"segment x3",
       [](PipelineModel& it) {
         Cost& cost = it.lane_stages[2].mean;
         cost.core_s /= 3;
         cost.device_s /= 3;
         cost.launch_s /= 3;
       }},
      {"threads.workers=" + std::to_string(p.workers + 1), [](PipelineModel& it) { ++it.workers; }},
      {"gate.frames=" + std::to_string(3 * p.admission), [](PipelineModel& it) { it.admission *= 3; }},
      {"read.threads=1", [](PipelineModel& it) { it.read_threads = 1; }},
      {"cores=" + std::to_string(static_cast<int>(p.cores) + 1), [](PipelineModel& it) { it.cores += 1; }}};
  if (p.others > 0) all.push_back({"others=0", [](PipelineModel& it) { it.others = 0; }});
  if (p.lane_stages.front().mean.device_s > 0)
    all.push_back({"gpus=2", [](PipelineModel& it) {
                     it.gpus = 2;
                     it.lanes *= 2;
                   }});
  return all;
}

double percentile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

struct Score {
  std::vector<double> errors;  // |predicted / real - 1|
  int inside = 0;
  void add(const Prediction& predicted, double real) {
    errors.push_back(std::abs(predicted.frames_per_s / real - 1));
    if (predicted.low <= real && real <= predicted.high) ++inside;
  }
  [[nodiscard]] double coverage() const {
    return errors.empty() ? 0 : static_cast<double>(inside) / static_cast<double>(errors.size());
  }
};

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  const auto options =
      bench::options_of(argc, argv, {{"pipelines", "100"}, {"seed", "1"}, {"median", "100"}, {"coverage", "0"}});
  const auto pipelines = static_cast<int>(bench::number(options, "pipelines"));
  const auto seed = static_cast<std::uint64_t>(bench::number(options, "seed"));
  const double median_limit = bench::number(options, "median"), coverage_limit = bench::number(options, "coverage");
  const bool as_json = options.count("json") > 0;
  Score all;
  std::map<std::string, Score> by_option;
  std::vector<double> mismatches;
  nlohmann::json worst = nlohmann::json::array();
  for (int i = 0; i < pipelines; ++i) {
    const PipelineModel real = drawn(seed + static_cast<std::uint64_t>(i));
    const Outcome outcome = simulate(real);
    const auto team = static_cast<int>(real.lane_stages.front().mean.threads);
    // Ten nice levels are drawn's weight of workers.
    const auto recording = recording_of(outcome.finished - outcome.begun, {real.batch, team, 10});
    if (!recording) {
      std::cerr << "pipeline " << real.seed << ": nothing was recorded\n";
      return 1;
    }
    const WhatIf what_if(*recording);
    mismatches.push_back(what_if.mismatch());
    for (const Change& change : changes_of(real)) {
      PipelineModel changed = real;
      change.real(changed);
      const double rate = simulate(changed).frames_per_s;
      const Prediction predicted = what_if.predict(change.text);
      all.add(predicted, rate);
      by_option[change.text.substr(0, change.text.find_first_of("= "))].add(predicted, rate);
      if (std::abs(predicted.frames_per_s / rate - 1) > 0.15)
        worst.push_back({{"seed", real.seed},
                         {"change", change.text},
                         {"before", outcome.frames_per_s},
                         {"predicted", predicted.frames_per_s},
                         {"real", rate},
                         {"mismatch", what_if.mismatch()}});
    }
  }
  const double median = 100 * percentile(all.errors, 0.5), coverage = 100 * all.coverage();
  if (as_json) {
    nlohmann::json by_name;
    for (const auto& [name, score] : by_option)
      by_name[name] = {{"changes", score.errors.size()},
                       {"median_error", percentile(score.errors, 0.5)},
                       {"p90_error", percentile(score.errors, 0.9)},
                       {"inside", score.coverage()}};
    const nlohmann::json text{{"cpu", cpu_name()},
                              {"instructions", cpu_features()},
                              {"pipelines", pipelines},
                              {"first_seed", seed},
                              {"changes", all.errors.size()},
                              {"median_error", median / 100},
                              {"p90_error", percentile(all.errors, 0.9)},
                              {"inside", coverage / 100},
                              {"median_mismatch", percentile(mismatches, 0.5)},
                              {"p90_mismatch", percentile(mismatches, 0.9)},
                              {"by_option", by_name},
                              {"errors_above_15_percent", worst}};
    std::cout << text.dump(1) << "\n";
  } else {
    std::cout << all.errors.size() << " changes of " << pipelines << " pipelines: median error " << median << " %, "
              << coverage << " % inside their interval\n";
    std::cout << "replays without a change: median error " << 100 * percentile(mismatches, 0.5) << " %\n";
    for (const auto& [name, score] : by_option)
      std::cout << "  " << name << ": median " << 100 * percentile(score.errors, 0.5) << " %, 90 % under "
                << 100 * percentile(score.errors, 0.9) << " %, inside " << 100 * score.coverage() << " %\n";
  }
  return median > median_limit || coverage < coverage_limit ? 1 : 0;
}
