#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace millrace {

/// Returns the CPU time of all threads of this process so far, in nanoseconds.
[[nodiscard]] std::int64_t process_cpu_ns() noexcept;

/// Returns the folders of the cgroups (v1 and v2) that can limit this process, the nearest first.
/// `controller` is "cpu" or "memory". `proc` and `mount` are the folders where procfs and cgroups are mounted.
[[nodiscard]] std::vector<std::string> cgroups(const std::string& controller, const std::string& proc,
                                               const std::string& mount);

/// Returns the number of cores that a cgroup may use; nothing if it sets no limit.
[[nodiscard]] std::optional<double> cpu_quota(const std::string& folder);

/// Returns the number of cores that this process may use, at least 0.01. It can be a fraction.
/// It is the size of the affinity mask, limited by the CPU quotas of the cgroups (v1 and v2).
[[nodiscard]] double available_cores();

}  // namespace millrace
