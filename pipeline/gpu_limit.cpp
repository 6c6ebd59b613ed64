#include "pipeline/gpu_limit.hpp"

#include <algorithm>
#include <cstdint>

namespace millrace {
namespace {

// Shorter times with a lower clock cost little.
constexpr double often = 0.2;

double launch_share(const Reading& reading) {
  return reading.busy_ns > 0 ? static_cast<double>(reading.launch_ns) / static_cast<double>(reading.busy_ns) : 0;
}

const ResourceReading* gpu_of(const Snapshot& window) {
  const auto gpu = std::ranges::find_if(window.resources,
                                        [](const ResourceReading& it) { return it.waited_for_by_lanes && !it.copies; });
  return gpu == window.resources.end() ? nullptr : &*gpu;
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

bool is_launch_bound(const Reading& part) { return part.launch_ns > 0 && part.launch_ns >= part.busy_ns; }

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
  limit.kind = is_launch_bound(calls)                                               ? GpuLimit::Kind::launch_bound
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
    if (!is_launch_bound(calls)) return;
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

std::vector<StageKernels> kernels_of(const ResourceReading& gpu, const std::vector<std::string>& stages) {
  std::vector<StageKernels> all(stages.size());
  for (const Reading& part : gpu.parts) {
    const auto stage = std::ranges::find(stages, part.stage);
    if (stage != stages.end()) {
      StageKernels& kernels = all[static_cast<std::size_t>(stage - stages.begin())];
      kernels.gpu_s += static_cast<double>(part.busy_ns) / 1e9;
      kernels.launch_s += static_cast<double>(part.launch_ns) / 1e9;
    } else if (part.busy_ns > 0) {
      return {};
    }
  }
  return all;
}

Snapshot with_waits_of_kernels(Snapshot window) {
  const ResourceReading* gpu = gpu_of(window);
  const auto lane = std::ranges::find_if(window.resources, &ResourceReading::in_turn);
  if (gpu == nullptr || lane == window.resources.end()) return window;
  std::vector<std::string> stages;
  double waits_ns = 0, all_s = 0;
  const auto wait_of = [](const Reading& part) { return part.measured_ns - part.on_core_ns - part.no_core_ns; };
  for (const Reading& part : lane->parts) {
    if (part.measured_ns == 0 && part.busy_ns > 0) return window;
    stages.push_back(part.name);
    waits_ns += static_cast<double>(wait_of(part));
  }
  std::vector<double> asked_s(stages.size());
  for (const ResourceReading& resource : window.resources) {
    if (!resource.waited_for_by_lanes) continue;
    const std::vector<StageKernels> work = kernels_of(resource, stages);
    if (work.empty()) return window;
    for (std::size_t i = 0; i < stages.size(); ++i) {
      asked_s[i] += work[i].gpu_s;
      all_s += work[i].gpu_s;
    }
  }
  if (all_s <= 0) return window;
  for (std::size_t i = 0; i < lane->parts.size(); ++i) {
    Reading& part = lane->parts[i];
    const auto more_ns = static_cast<std::int64_t>(waits_ns * asked_s[i] / all_s) - wait_of(part);
    part.busy_ns += more_ns;
    part.measured_ns += more_ns;
  }
  return window;
}

}  // namespace millrace
