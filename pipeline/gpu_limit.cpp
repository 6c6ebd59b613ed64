#include "pipeline/gpu_limit.hpp"

#include <algorithm>

namespace millrace {
namespace {

// If calls take hardly longer than their launches, the kernels wait for the host. With a longer queue of kernels, the
// host would be far ahead of the GPU, and launches would take a small share.
constexpr double launch_bound = 0.8;
// Shorter times with a lower clock cost little.
constexpr double often = 0.2;

double launch_share(const Reading& reading) {
  return reading.busy_ns > 0 ? static_cast<double>(reading.launch_ns) / static_cast<double>(reading.busy_ns) : 0;
}

void drop_launches(Reading& reading) {
  if (launch_share(reading) >= launch_bound)
    reading.busy_ns = std::max<std::int64_t>(reading.busy_ns - reading.launch_ns, 0);
}

}  // namespace

std::string_view to_string(GpuLimit::Kind kind) {
  switch (kind) {
    case GpuLimit::Kind::unknown:
      return "";
    case GpuLimit::Kind::launch_bound:
      return "launch_bound";
    case GpuLimit::Kind::compute_bound:
      return "compute_bound";
    case GpuLimit::Kind::throttled:
      return "throttled";
  }
  return "";
}

GpuLimit gpu_limit(const Snapshot& window) {
  GpuLimit limit;
  const auto gpu = std::ranges::find_if(window.resources, &ResourceReading::waited_for_by_lanes);
  if (gpu == window.resources.end() || gpu->total.launch_ns <= 0) return limit;
  const auto share = [&](const std::optional<std::int64_t>& ns) {
    return ns && window.time_ns > 0 ? std::optional(static_cast<double>(*ns) / static_cast<double>(window.time_ns))
                                    : std::nullopt;
  };
  limit.launch = launch_share(gpu->total);
  limit.heat = share(window.machine.gpu_heat_ns);
  limit.power = share(window.machine.gpu_power_ns);
  limit.kind = limit.launch >= launch_bound                                         ? GpuLimit::Kind::launch_bound
               : std::max(limit.heat.value_or(0), limit.power.value_or(0)) >= often ? GpuLimit::Kind::throttled
                                                                                    : GpuLimit::Kind::compute_bound;
  return limit;
}

Snapshot without_launches(Snapshot window) {
  for (ResourceReading& resource : window.resources) {
    if (!resource.waited_for_by_lanes) continue;
    if (resource.parts.empty()) drop_launches(resource.total);
    for (Reading& part : resource.parts) {
      const auto before_ns = part.busy_ns;
      drop_launches(part);
      resource.total.busy_ns -= before_ns - part.busy_ns;
    }
  }
  return window;
}

}  // namespace millrace
