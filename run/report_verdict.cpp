#include "run/report_verdict.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "pipeline/verdict.hpp"
#include "run/resolve.hpp"

namespace millrace {
namespace {

// The driver tells once a second why clocks are low, during the warm-up too. For each reason, the GPU with the largest
// share counts.
void add_slow_clocks(const std::vector<GpuSummary>& gpus, Snapshot& begun, Snapshot& finished) {
  const auto wall_ns = static_cast<double>(finished.time_ns - begun.time_ns);
  const auto add = [&](std::optional<double> GpuSummary::*share, std::optional<std::int64_t> MachineTime::*time_ns) {
    for (const GpuSummary& gpu : gpus) {
      if (!(gpu.*share)) continue;
      begun.machine.*time_ns = 0;
      const auto slow_ns = static_cast<std::int64_t>(*(gpu.*share) * wall_ns);
      finished.machine.*time_ns = std::max((finished.machine.*time_ns).value_or(0), slow_ns);
    }
  };
  add(&GpuSummary::heat_limited, &MachineTime::gpu_heat_ns);
  add(&GpuSummary::power_limited, &MachineTime::gpu_power_ns);
}

PredictedGains gains_of(const RunReport& report) {
  PredictedGains gains;
  const double rate = static_cast<double>(report.window.committed) * 1e9 / static_cast<double>(report.window.time_ns);
  for (const Prediction& it : report.what_if) gains[it.change] = it.frames_per_s / rate - 1;
  return gains;
}

}  // namespace

void fill_verdict(RunReport& report, Snapshot begun, Snapshot end) {
  add_slow_clocks(report.gpus, begun, end);
  report.verdict = judge(begun, end, gains_of(report));
  if (!report.window.measured)
    report.verdict.sentence = "No verdict: the setting measure.enabled=no switches measuring off.";
  // judge() names options as the graph does.
  report.verdict.sentence = in_users_words(report.verdict.sentence);
}

}  // namespace millrace
