#include "run/device_models.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace millrace {

std::vector<DeviceModels> make_device_models(const Devices& devices, const ResolvedConfig& resolved,
                                             const ModelOptions& options, const EngineFactory& factory,
                                             TraceRecorder* recorder) {
  std::vector<DeviceModels> all;
  const auto captures = std::make_shared<std::mutex>();
  for (std::size_t i = 0; i < devices.ordinals.size(); ++i) {
    DeviceModels one;
    one.limits = std::make_shared<CallLimits>();
    if (devices.lanes_wait_for_gpu()) {
      one.demand = std::make_shared<Demand>();
      one.work = std::make_shared<DeviceWork>();
    }
    if (options.graphs && devices.kind == Devices::Kind::cuda) one.graphs = std::make_shared<GraphUse>(captures);
    // Each engine records calls that run out of memory and, on a GPU, counts calls for the load.
    EngineFactory engines = [engines = engines_on(devices, i, resolved.precisions, factory), demand = one.demand,
                             limits = one.limits, recorder](const Package& package, const EngineOptions& options) {
      auto engine = limited(engines(package, options), package, limits);
      return demand == nullptr ? engine : counted(std::move(engine), package, demand, recorder);
    };
    // engines_on() sets device and precision.
    one.cache = std::make_unique<ModelCache>(
        options.budget, std::move(engines),
        EngineOptions{.threads = resolved.team, .graphs = one.graphs, .lanes = resolved.graph.lanes});
    const std::size_t first = devices.first_of_gpu(i);
    // Devices on one GPU share the mutex, because their calls would disturb each other's times.
    one.alone = first < i ? all[first].alone : std::make_shared<std::shared_mutex>();
    all.push_back(std::move(one));
  }
  return all;
}

CacheStatistics statistics(const std::vector<DeviceModels>& models) {
  CacheStatistics all;
  for (const auto& device : models) {
    const CacheStatistics one = device.cache->statistics();
    all.loads.insert(all.loads.end(), one.loads.begin(), one.loads.end());
    all.hits += one.hits;
    all.evictions += one.evictions;
    all.resident_bytes += one.resident_bytes;
  }
  return all;
}

void add_gpus(Snapshot& snapshot, const std::vector<DeviceModels>& models, int gpus,
              const std::vector<GpuPart>& parts) {
  if (models.empty() || models.front().demand == nullptr) return;
  const auto row = [&](const std::string& name, const std::string& stage) {
    return Reading{.name = name, .stage = stage, .servers = gpus, .unit = Unit::tasks};
  };
  // What stages did with an engine of the GPUs, besides calls of models.
  const auto add_jobs = [&](ResourceReading& resource, DeviceWork::Engine engine, const std::string& jobs) {
    // The same order in each snapshot, whichever GPU was first in a stage.
    std::map<std::string, Reading> by_stage;
    for (const auto& device : models) {
      for (const DeviceWork::Part& one : device.work->parts()) {
        const auto sum = one.engines.find(engine);
        if (sum == one.engines.end()) continue;
        Reading& part = by_stage.try_emplace(one.stage, row(one.stage + " " + jobs, one.stage)).first->second;
        part.items += sum->second.jobs;
        part.busy_ns += sum->second.busy_ns;
      }
    }
    for (auto& [stage, part] : by_stage) resource.parts.push_back(std::move(part));
  };
  const auto add = [&](ResourceReading resource) {
    for (const Reading& part : resource.parts) {
      resource.total.items += part.items;
      resource.total.busy_ns += part.busy_ns;
      resource.total.launch_ns += part.launch_ns;
    }
    snapshot.resources.push_back(std::move(resource));
  };
  ResourceReading gpu{.total = row("GPU", ""), .parts = {}, .waited_for_by_lanes = true};
  for (const auto& [name, stage] : parts) {
    Reading& part = gpu.parts.emplace_back(row(name, stage));
    for (const auto& device : models) {
      for (const Demand::Part& one : device.demand->parts()) {
        if (one.name != name) continue;
        part.items += one.calls;
        part.busy_ns += one.busy_ns;
        part.launch_ns += one.launch_ns;
      }
    }
  }
  add_jobs(gpu, DeviceWork::Engine::kernels, "operations");
  add(std::move(gpu));
  for (const auto& [engine, name] :
       {std::pair{DeviceWork::Engine::uploads, "uploads"}, {DeviceWork::Engine::downloads, "downloads"}}) {
    ResourceReading copies{.total = row(std::string("GPU ") + name, ""), .parts = {}, .waited_for_by_lanes = true};
    copies.copies = true;
    add_jobs(copies, engine, name);
    add(std::move(copies));
  }
}

std::map<std::string, std::int64_t> copied_bytes(const std::vector<DeviceModels>& models) {
  std::map<std::string, std::int64_t> all;
  for (const auto& device : models) {
    if (device.work == nullptr) continue;
    for (const DeviceWork::Part& one : device.work->parts()) all[one.stage] += one.copied_bytes;
  }
  return all;
}

std::map<std::string, std::int64_t> graph_counts(const std::vector<DeviceModels>& models) {
  std::map<std::string, std::int64_t> counts;
  for (const auto& device : models) {
    if (device.graphs == nullptr) continue;
    counts["graphs_captured"] += device.graphs->captured;
    counts["graph_launches"] += device.graphs->launched;
  }
  return counts;
}

std::vector<std::string> graph_notes(const std::vector<DeviceModels>& models) {
  std::vector<std::string> notes;
  std::set<std::string> never;  // methods that cannot be captured in any shape
  for (const auto& device : models) {
    if (device.graphs == nullptr) continue;
    for (const GraphUse::Refusal& refusal : device.graphs->refusals()) {
      if (refusal.no_memory || never.insert(refusal.method).second) notes.push_back(text_of(refusal));
    }
  }
  return notes;
}

void remember_limits(const KnownLimits& known, const std::string& kind, const Packages& packages,
                     const std::vector<DeviceModels>& models) {
  std::map<CallLimits::Key, int> smallest;
  std::optional<std::int64_t> limit_bytes;
  for (const auto& device : models) {
    if (!device.memory) continue;
    // The plan's own list counts too: a later call can make CallLimits forget what the plan has learned.
    for (const auto& learned : {device.memory->ran_out, device.limits->learned()}) {
      for (const auto& [key, rows] : learned) {
        const auto [entry, is_new] = smallest.try_emplace(key, rows);
        if (!is_new) entry->second = std::min(entry->second, rows);
      }
    }
    limit_bytes = std::min(limit_bytes.value_or(device.memory->limit_bytes), device.memory->limit_bytes);
  }
  if (limit_bytes) known.remember(kind, *limit_bytes, packages, smallest);
}

}  // namespace millrace
