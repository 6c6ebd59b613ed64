#pragma once

#include <cstdint>
#include <string>

namespace millrace {

/// The name of this CPU, as /proc/cpuinfo gives it. Empty if it cannot be read.
std::string cpu_name();

/// The instructions of this CPU that decide how fast models are: "avx2 fma avx512f". Empty if it has none of them.
/// Results of benchmarks have both, because a name such as "AMD EPYC" does not tell the instructions.
std::string cpu_features();

/// The memory of this machine in bytes, also of one whose user may take less.
std::int64_t memory_of_machine();

}  // namespace millrace
