#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/stream.hpp"
#include "models/cache.hpp"
#include "models/call_limits.hpp"
#include "run/known_limits.hpp"
#include "run/planned_models.hpp"

namespace millrace {

/// What a run keeps on a GPU, in bytes.
struct MemoryPlan {
  std::string device;  ///< "GPU 0"
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;      ///< before anything was loaded
  std::int64_t limit_bytes = 0;     ///< of those, what the run plans with: device.memory
  std::int64_t models_bytes = 0;    ///< measured
  std::int64_t calls_bytes = 0;     ///< measured: what the calls of one lane need
  std::int64_t pictures_bytes = 0;  ///< of one lane at most, computed: rasters, inputs of models, embeddings, logits
  int lanes = 1;
  int wanted_lanes = 1;
  std::map<CallLimits::Key, int> smaller_calls;  ///< most rows of calls that have fewer than the options allow
  std::map<CallLimits::Key, std::pair<std::string, RowKind>> called;  ///< for messages: the package's name, rows
  std::map<CallLimits::Key, int> ran_out;  ///< most rows of calls that failed while nothing else was there
  std::string known_from;                  ///< the file of earlier runs, where some of these come from

  [[nodiscard]] std::int64_t lane_bytes() const { return calls_bytes + pictures_bytes; }
  [[nodiscard]] std::int64_t bytes() const { return models_bytes + lanes * lane_bytes(); }
  /// One sentence for people.
  [[nodiscard]] std::string text() const;
};

/// What device.memory allows of this memory: "0.9" of what is free, or so many bytes of it. Throws UsageError.
std::int64_t memory_limit(const std::string& option, const DeviceMemory& memory);

/// What is to be planned for; outlives the planning.
struct MemoryNeeds {
  const std::vector<PlannedModel>& models;
  int objects = 0;  ///< that may be found in a picture
  const Packages& packages;
  std::string memory;  ///< device.memory
  int batch_size = 1;
  std::int64_t slab_bytes = 0;
  int lanes = 1;     ///< as many as are wanted on this device
  int sharing = 1;   ///< devices that share this one's memory: each plans with its part
  std::string kind;  ///< of the device, as `known` tells them apart
  const KnownLimits& known;
};

/// Loads and calls the models on `device`, which nothing else uses yet, and sees what that takes: calls that do not fit
/// are made smaller (`limits`), then as many lanes are kept as fit. Nothing where memory is that of the host.
/// Throws OutOfMemoryError where not even a picture fits.
std::optional<MemoryPlan> plan_memory(const MemoryNeeds& needs, Device& device, ModelCache& models, CallLimits& limits);

}  // namespace millrace
