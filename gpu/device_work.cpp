#include "gpu/device_work.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace millrace {
namespace {

// Of each kind. The events of a timed job cost the lane's thread some microseconds.
constexpr std::int64_t most_timed = 32;

double lower_quartile(std::vector<double> values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

// Later places share one, so that their number has a limit.
DeviceWork::Kind DeviceWork::kind_of(const Job& job) {
  constexpr int most_places = 16;
  return {job.engine, job.operation, std::min(job.place, most_places), std::ilogb(job.units)};
}

bool DeviceWork::ran(const Job& job) {
  if (job.units <= 0) return false;
  const std::lock_guard lock(mutex_);
  Jobs& known = stages_[job.stage].jobs[kind_of(job)];
  known.units += job.units;
  return ++known.count <= most_timed;
}

void DeviceWork::took(const Job& job, double seconds) {
  const std::lock_guard lock(mutex_);
  stages_[job.stage].jobs[kind_of(job)].seconds_per_unit.push_back(seconds / job.units);
}

std::vector<DeviceWork::Part> DeviceWork::parts() const {
  const std::lock_guard lock(mutex_);
  std::vector<Part> all;
  for (const auto& [name, stage] : stages_) {
    Part part{.stage = name};
    for (const auto& [kind, known] : stage.jobs) {
      const Engine engine = std::get<Engine>(kind);
      if (engine != Engine::kernels) part.copied_bytes += static_cast<std::int64_t>(known.units);
      Sum& sum = part.engines[engine];
      sum.jobs += known.count;
      if (known.seconds_per_unit.empty()) continue;
      sum.busy_ns += static_cast<std::int64_t>(known.units * lower_quartile(known.seconds_per_unit) * 1e9);
    }
    for (auto& [engine, sum] : part.engines) {
      std::int64_t& highest_ns = stage.busy_ns[engine];
      sum.busy_ns = highest_ns = std::max(highest_ns, sum.busy_ns);
    }
    all.push_back(std::move(part));
  }
  return all;
}

}  // namespace millrace
