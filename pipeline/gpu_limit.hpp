#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "pipeline/statistics.hpp"

namespace millrace {

/// Why the GPUs of a run do not do more.
struct GpuLimit {
  enum class Kind {
    unknown,        ///< the run used no GPU, or nobody measured its calls
    launch_bound,   ///< calls take as long as the host needs to launch their kernels
    compute_bound,  ///< calls take longer than that: the kernels themselves are the limit
    throttled       ///< like compute_bound, and the driver often lowered the clock
  };
  Kind kind = Kind::unknown;
  double launch = 0;  ///< time to launch the kernels of calls, as a share of the time that the calls take alone
  std::optional<double> heat, power;  ///< shares of the time with a lower clock for this reason
};
[[nodiscard]] std::string_view to_string(GpuLimit::Kind kind);

/// What limits the GPU in a window when it computes `part`, whether or not the GPU limits the run.
[[nodiscard]] GpuLimit gpu_limit(const Snapshot& window, const std::string& part);

/// What limits the GPU in the calls that wait for launches; unknown if there are none.
/// `launches_s` becomes the time of their launches.
[[nodiscard]] GpuLimit launch_limit(const Snapshot& window, double& launches_s);

/// The window without the time in which a GPU only waits for launches: lanes can launch at the same time, so it is no
/// demand of the GPU. How long the kernels of a launch-bound call take is not known, so none of its launch time stays.
[[nodiscard]] Snapshot without_launches(Snapshot window);

}  // namespace millrace
