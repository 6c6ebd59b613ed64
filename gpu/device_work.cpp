#include "gpu/device_work.hpp"

#include <algorithm>
#include <cstddef>

namespace millrace {
namespace {

// Of each operation in a stage. The events of a timed operation cost the lane's thread some microseconds.
constexpr std::int64_t most_timed = 32;

double lower_quartile(std::vector<double> values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

bool DeviceWork::ran(const std::string& stage, std::string_view operation, double units) {
  if (units <= 0) return false;
  const std::lock_guard lock(mutex_);
  auto& known = stages_[stage].operations;
  auto found = known.find(operation);
  if (found == known.end()) found = known.emplace(operation, Operations{}).first;
  found->second.units += units;
  return ++found->second.count <= most_timed;
}

void DeviceWork::took(const std::string& stage, std::string_view operation, double units, double seconds) {
  const std::lock_guard lock(mutex_);
  const auto found = stages_[stage].operations.find(operation);
  if (found != stages_[stage].operations.end()) found->second.seconds_per_unit.push_back(seconds / units);
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
    for (const auto& [operation, known] : stage.operations) {
      part.operations += known.count;
      if (known.seconds_per_unit.empty()) continue;
      part.busy_ns += static_cast<std::int64_t>(known.units * lower_quartile(known.seconds_per_unit) * 1e9);
    }
    all.push_back(std::move(part));
  }
  return all;
}

}  // namespace millrace
