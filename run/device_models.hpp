#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "models/cache.hpp"
#include "models/call_limits.hpp"
#include "models/demand.hpp"
#include "pipeline/statistics.hpp"
#include "run/memory_plan.hpp"
#include "run/resolve.hpp"

namespace millrace {

/// The models of a run on one device; its lanes share them.
struct DeviceModels {
  std::shared_ptr<CallLimits> limits;  ///< what was learned of memory
  std::shared_ptr<Demand> demand;      ///< what calls take alone; null where the host computes
  std::unique_ptr<ModelCache> cache;   ///< its engines count into `demand` and `limits`
  std::optional<MemoryPlan> memory{};  ///< where the device's memory is its own, once it is planned
  std::shared_ptr<std::mutex> alone;   ///< of the GPU: who holds it may time calls there, and guards `measured`
  bool measured = false;               ///< `demand` knows what calls take
};

/// One for each of `devices`, nothing loaded yet. `factory` loads packages.
std::vector<DeviceModels> make_device_models(const Devices& devices, const Numbers& numbers, std::int64_t budget,
                                             const EngineFactory& factory);

/// Loads and statistics of all devices together.
CacheStatistics statistics(const std::vector<DeviceModels>& models);

/// Adds a resource "GPU" with these parts (Method::part), by what the calls so far take alone. Nothing without GPUs.
void add_gpus(Snapshot& snapshot, const std::vector<DeviceModels>& models, int gpus,
              const std::vector<std::string>& parts);

/// Keeps for later runs what was learned of memory on devices of this kind; nothing where memory was not planned.
void remember_limits(const KnownLimits& known, const std::string& kind, const Packages& packages,
                     const std::vector<DeviceModels>& models);

}  // namespace millrace
