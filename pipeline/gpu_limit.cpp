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

const ResourceReading* gpu_of(const Snapshot& window) {
  const auto gpu = std::ranges::find_if(window.resources, &ResourceReading::waited_for_by_lanes);
  return gpu == window.resources.end() ? nullptr : &*gpu;
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

GpuLimit gpu_limit(const Snapshot& window, const std::string& part) {
  GpuLimit limit;
  const ResourceReading* gpu = gpu_of(window);
  if (gpu == nullptr) return limit;
  const auto named = std::ranges::find(gpu->parts, part, &Reading::name);
  const Reading& calls = named != gpu->parts.end() ? *named : gpu->total;
  if (calls.launch_ns <= 0) return limit;
  const auto share = [&](const std::optional<std::int64_t>& ns) {
    return ns && window.time_ns > 0 ? std::optional(static_cast<double>(*ns) / static_cast<double>(window.time_ns))
                                    : std::nullopt;
  };
  limit.launch = launch_share(calls);
  limit.heat = share(window.machine.gpu_heat_ns);
  limit.power = share(window.machine.gpu_power_ns);
  limit.kind = limit.launch >= launch_bound                                         ? GpuLimit::Kind::launch_bound
               : std::max(limit.heat.value_or(0), limit.power.value_or(0)) >= often ? GpuLimit::Kind::throttled
                                                                                    : GpuLimit::Kind::compute_bound;
  return limit;
}

GpuLimit launch_limit(const Snapshot& window, double& launches_s) {
  GpuLimit limit;
  launches_s = 0;
  const ResourceReading* gpu = gpu_of(window);
  if (gpu == nullptr) return limit;
  double calls_s = 0;
  const auto add = [&](const Reading& calls) {
    if (launch_share(calls) < launch_bound) return;
    calls_s += static_cast<double>(calls.busy_ns) / 1e9;
    launches_s += static_cast<double>(calls.launch_ns) / 1e9;
  };
  if (gpu->parts.empty()) add(gpu->total);
  for (const Reading& part : gpu->parts) add(part);
  if (calls_s <= 0) return limit;
  limit.kind = GpuLimit::Kind::launch_bound;
  limit.launch = launches_s / calls_s;
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
