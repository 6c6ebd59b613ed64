#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/statistics.hpp"

namespace millrace {

/// Why the GPUs of a run do not do more.
struct GpuLimit {
  enum class Kind {
    unknown,        ///< the run used no GPU, or nobody measured its calls
    launch_bound,   ///< the host needs longer to launch the kernels of calls than the GPU to run them
    compute_bound,  ///< the kernels themselves are the limit
    throttled       ///< like compute_bound, and the driver often lowered the clock
  };
  Kind kind = Kind::unknown;
  double launch = 0;                  ///< time to launch the kernels of calls, as a share of the time of these kernels
  std::optional<double> heat, power;  ///< shares of the time with a lower clock for this reason
};
[[nodiscard]] std::string_view to_string(GpuLimit::Kind kind);

/// Whether the host needs at least as long to launch the kernels of a part of a GPU as they run. Launches overlap with
/// kernels, so one lane cannot keep the GPU busy then.
[[nodiscard]] bool is_launch_bound(const Reading& part);

/// What limits the GPU in a window when it computes `part`, whether or not the GPU limits the run.
[[nodiscard]] GpuLimit gpu_limit(const Snapshot& window, const std::string& part);

/// What limits the GPU in the calls that wait for launches; unknown if there are none.
/// `launches_s` becomes the time of their launches.
[[nodiscard]] GpuLimit launch_limit(const Snapshot& window, double& launches_s);

/// The kernels that a lane stage launched, or the copies that it asked for, in seconds.
struct StageKernels {
  double gpu_s = 0;     ///< they run
  double launch_s = 0;  ///< the host launches them
};
/// The kernels or copies of each of these lane stages. Empty if the stages are not known for all of them.
[[nodiscard]] std::vector<StageKernels> kernels_of(const ResourceReading& gpu, const std::vector<std::string>& stages);

/// The window, but lanes' waits for GPUs count for the stages whose kernels and copies took the time. A stage only
/// launches its kernels, and a later one waits for them: `postprocess` for those of `segment`.
/// Unchanged if core times or kernels_of() are not known.
[[nodiscard]] Snapshot with_waits_of_kernels(Snapshot window);

}  // namespace millrace
