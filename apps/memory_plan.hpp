#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "apps/known_limits.hpp"
#include "apps/setup.hpp"
#include "gpu/device.hpp"
#include "gpu/stream.hpp"
#include "models/cache.hpp"
#include "models/call_limits.hpp"

namespace millrace {

/// Pictures of a model's call, and boxes of a decoder's, as a run makes them.
struct CallShape {
  int pictures = 1, boxes = 0;
};
/// Of a package: what the options and the package allow, and memory (`limits`) too.
CallShape call_shape(const Package& package, const Settings& settings, int batch_size, const CallLimits& limits);

/// What a run keeps on a GPU, in bytes. All of it is taken once, so a run that has begun does not grow.
struct MemoryPlan {
  std::string device;  ///< "GPU 0"
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;      ///< before anything was loaded
  std::int64_t limit_bytes = 0;     ///< of those, what the run plans with: device.memory
  std::int64_t models_bytes = 0;    ///< measured
  std::int64_t calls_bytes = 0;     ///< measured at warm-up: what the calls of one lane need
  std::int64_t pictures_bytes = 0;  ///< of one lane at most, computed: rasters, inputs of models, logits
  int lanes = 1;
  int wanted_lanes = 1;
  std::map<CallLimits::Key, int> smaller_calls;  ///< rows of calls for which the planned number does not fit

  [[nodiscard]] std::int64_t lane_bytes() const { return calls_bytes + pictures_bytes; }
  [[nodiscard]] std::int64_t bytes() const { return models_bytes + lanes * lane_bytes(); }
  /// One sentence for people.
  [[nodiscard]] std::string text() const;
};

/// What device.memory allows of this memory: "0.9" of what is free, or so many bytes of it. Throws UsageError.
std::int64_t memory_limit(const std::string& option, const DeviceMemory& memory);

/// Loads and calls the models on `device`, which nothing else uses yet, and sees what that takes: calls that do not fit
/// are made smaller (`limits`, which begin with what is `known` of devices called `kind`), then as many of the `wanted`
/// lanes are kept as fit. Nothing where memory is that of the host. Throws OutOfMemoryError where not even a picture
/// fits.
std::optional<MemoryPlan> plan_memory(Device& device, const Settings& settings, int batch_size, std::int64_t slab_bytes,
                                      int wanted, const Packages& packages, ModelCache& models, const std::string& kind,
                                      const KnownLimits& known, CallLimits& limits);

}  // namespace millrace
