#include "gpu/device_work.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace millrace {
namespace {

// Of each kind. The events of a timed operation cost the lane's thread some microseconds.
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
  return {job.operation, std::min(job.place, most_places), std::ilogb(job.units)};
}

bool DeviceWork::ran(const Job& job) {
  if (job.units <= 0) return false;
  const std::lock_guard lock(mutex_);
  Operations& known = stages_[job.stage].operations[kind_of(job)];
  known.units += job.units;
  return ++known.count <= most_timed;
}

void DeviceWork::took(const Job& job, double seconds) {
  const std::lock_guard lock(mutex_);
  stages_[job.stage].operations[kind_of(job)].seconds_per_unit.push_back(seconds / job.units);
}

void DeviceWork::copied(const std::string& stage, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  stages_[stage].copied_bytes += bytes;
}

std::vector<DeviceWork::Part> DeviceWork::parts() const {
  const std::lock_guard lock(mutex_);
  std::vector<Part> all;
  for (const auto& [name, stage] : stages_) {
    Part part{.stage = name, .copied_bytes = stage.copied_bytes};
    for (const auto& [kind, known] : stage.operations) {
      part.operations += known.count;
      if (known.seconds_per_unit.empty()) continue;
      part.busy_ns += static_cast<std::int64_t>(known.units * lower_quartile(known.seconds_per_unit) * 1e9);
    }
    part.busy_ns = stage.busy_ns = std::max(stage.busy_ns, part.busy_ns);
    all.push_back(std::move(part));
  }
  return all;
}

}  // namespace millrace
