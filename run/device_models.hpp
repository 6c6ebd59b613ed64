#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "gpu/device_work.hpp"
#include "models/cache.hpp"
#include "models/call_limits.hpp"
#include "models/demand.hpp"
#include "pipeline/statistics.hpp"
#include "run/memory_plan.hpp"
#include "run/resolve.hpp"

namespace millrace {

/// The models of a run on one device. The lanes of the device share them.
struct DeviceModels {
  std::shared_ptr<CallLimits> limits;  ///< limits of calls, learned when memory ran out
  std::shared_ptr<Demand> demand;      ///< the time that each call takes alone; null if models run on the host
  std::shared_ptr<DeviceWork> work;    ///< operations and copies of the lanes; null if models run on the host
  std::shared_ptr<GraphUse> graphs;    ///< null: calls are plain
  std::unique_ptr<ModelCache> cache;   ///< its engines report their calls to `demand` and `limits`
  std::optional<MemoryPlan> memory{};  ///< set by planning, if the device has its own memory
  std::unique_ptr<std::mutex> first = std::make_unique<std::mutex>();  ///< a GPU's first lane holds it in its warm-up
  std::shared_ptr<std::shared_mutex> alone;  ///< one for each GPU: a lane that times calls owns it, others share it
  bool warm = false;       ///< a lane has called the models, and `demand` knows their times; guarded by `first`
  std::size_t called = 0;  ///< on the host: of the planned models, how many some lane has called; guarded by `first`
};

/// One for each of `devices`. Loads nothing yet; `factory` loads packages later. The budget is for each device.
/// `recorder` gets the calls that count in `demand`; null: none.
std::vector<DeviceModels> make_device_models(const Devices& devices, const ResolvedConfig& resolved,
                                             const ModelOptions& options, const EngineFactory& factory,
                                             TraceRecorder* recorder = nullptr);

/// The statistics of the caches of all devices together.
CacheStatistics statistics(const std::vector<DeviceModels>& models);

/// A part of the row "GPU" of the report.
struct GpuPart {
  std::string name;   ///< Method::part
  std::string stage;  ///< that makes its calls; empty if several do
};
/// Adds a resource "GPU" with these parts, and one for the operations of each stage ("preprocess operations").
/// Also adds "GPU uploads" and "GPU downloads", with a part for each stage ("preprocess uploads").
/// Busy times are sums over all calls, operations and copies so far, each with the time that it takes alone.
/// Does nothing if models run on the host.
void add_gpus(Snapshot& snapshot, const std::vector<DeviceModels>& models, int gpus, const std::vector<GpuPart>& parts);

/// The bytes that each stage copied between the host and its GPU. Empty if models run on the host.
std::map<std::string, std::int64_t> copied_bytes(const std::vector<DeviceModels>& models);

/// Counters of CUDA graphs by their names in the report, and a sentence for each call that stays plain. Empty if none was
/// asked for.
std::map<std::string, std::int64_t> graph_counts(const std::vector<DeviceModels>& models);
std::vector<std::string> graph_notes(const std::vector<DeviceModels>& models);

/// Keeps the limits of calls on devices of this kind for later runs. Does nothing if no memory was planned.
void remember_limits(const KnownLimits& known, const std::string& kind, const Packages& packages,
                     const std::vector<DeviceModels>& models);

}  // namespace millrace
