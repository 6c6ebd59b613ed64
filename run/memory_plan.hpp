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
#include "models/graph_use.hpp"
#include "run/known_limits.hpp"
#include "run/planned_models.hpp"

namespace millrace {

/// How a run uses the memory of a GPU.
struct MemoryPlan {
  std::string device;  ///< "GPU 0"
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;      ///< before anything was loaded
  std::int64_t limit_bytes = 0;     ///< the part of free_bytes that the run may use: device.memory
  std::int64_t models_bytes = 0;    ///< measured
  std::int64_t calls_bytes = 0;     ///< measured: what one lane's calls take, and keep for later calls
  std::int64_t pictures_bytes = 0;  ///< computed maximum of one lane: rasters, inputs of models, embeddings, logits
  std::map<std::string, std::int64_t> stage_bytes;  ///< measured: the most that a call of each stage needs
  int lanes = 1;
  int wanted_lanes = 1;
  std::map<CallLimits::Key, int> smaller_calls;  ///< maximum rows of calls that are smaller than the options allow
  std::map<CallLimits::Key, std::pair<std::string, RowKind>> called;  ///< for messages: package's name, kind of row
  std::map<CallLimits::Key, int> ran_out;  ///< limits of calls that ran out of memory while the models were planned
  std::string known_from;                  ///< the file of earlier runs, if it gave some limits

  [[nodiscard]] std::int64_t lane_bytes() const { return calls_bytes + pictures_bytes; }
  [[nodiscard]] std::int64_t bytes() const { return models_bytes + lanes * lane_bytes(); }
  /// The plan for people, in one line.
  [[nodiscard]] std::string text() const;
};

/// The bytes that device.memory allows: a share of the free memory such as "0.9", or at most a number of bytes.
/// Throws UsageError.
std::int64_t memory_limit(const std::string& option, const DeviceMemory& memory);

/// The input of the planning.
struct MemoryNeeds {
  const std::vector<PlannedModel>& models;
  int objects = 0;  ///< maximum number of objects that detectors may find in a picture
  const Packages& packages;
  std::string memory;  ///< device.memory
  int batch_size = 1;
  std::int64_t slab_bytes = 0;
  int lanes = 1;     ///< number of lanes that the run wants on this device
  int sharing = 1;   ///< number of devices on the same GPU; each plans with an equal part of the memory
  std::string kind;  ///< kind of the device, as a key for `known`
  const KnownLimits& known;
  GraphUse* graphs = nullptr;  ///< null: calls are plain
};

/// Loads and calls the models on `device` and measures the memory that they take. Nothing else may use the device yet.
/// Makes calls smaller until they fit (`limits`), then plans the number of lanes that fit. CUDA graphs are made for the
/// final sizes only, since they keep their memory.
/// Returns nothing if the device uses the memory of the host.
/// Throws OutOfMemoryError if not even one picture fits.
std::optional<MemoryPlan> plan_memory(const MemoryNeeds& needs, Device& device, ModelCache& models, CallLimits& limits);

}  // namespace millrace
