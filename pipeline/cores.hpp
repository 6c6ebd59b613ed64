#pragma once

#include <cstdint>

namespace millrace {

/// CPU time of all threads of this process so far, in nanoseconds.
[[nodiscard]] std::int64_t process_cpu_ns() noexcept;

/// Cores this process may use: its affinity mask, lowered by the CPU quota of its cgroups (v2 and v1); may be a
/// fraction. At least 0.01.
[[nodiscard]] double available_cores();

}  // namespace millrace
