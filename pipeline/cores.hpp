#pragma once

#include <cstdint>

namespace millrace {

/// Returns the CPU time of all threads of this process so far, in nanoseconds.
[[nodiscard]] std::int64_t process_cpu_ns() noexcept;

/// Returns the number of cores that this process may use, at least 0.01. It can be a fraction.
/// It is the size of the affinity mask, limited by the CPU quotas of the cgroups (v1 and v2).
[[nodiscard]] double available_cores();

}  // namespace millrace
