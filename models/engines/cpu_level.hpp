#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/engines/threads.hpp"

namespace millrace {

/// The instruction sets that LibTorch, oneDNN and MKL compute with, lowest first.
/// Results of two levels differ in their last bits, so the plan names the level.
/// A CPU that has a level also has the lower ones.
enum class CpuLevel { sse41, avx2, avx512 };

/// "sse4.1", "avx2", "avx512"
std::string_view name_of(CpuLevel level);
std::optional<CpuLevel> cpu_level_of(std::string_view name);

/// The highest level of this CPU.
CpuLevel level_of_cpu();

/// Returns the value of an environment variable, or null.
using Environment = std::function<const char*(const char* name)>;

/// `highest`, or the lowest limit that the user's environment sets for one of the three libraries.
/// - LibTorch: ATEN_CPU_CAPABILITY
/// - oneDNN: ONEDNN_MAX_CPU_ISA, or DNNL_MAX_CPU_ISA
/// - MKL: MKL_ENABLE_INSTRUCTIONS and MKL_CBWR
/// Values that the library itself ignores are ignored here too.
CpuLevel lowered_by(const Environment& environment, CpuLevel highest);

/// The default level of runs on this machine: level_of_cpu(), lowered by the environment.
CpuLevel best_level();

/// The instructions that MKL uses when a run computes at this level.
/// On Intel's CPUs, and for the lowest level on all CPUs, MKL can be limited to the level: the result is its name.
/// On other CPUs, the result is the maker and the CPU's highest level: "AuthenticAMD avx512".
std::string mkl_instructions(CpuLevel level);
/// The same for a CPU of that maker (as CPUID names it) with that highest level.
std::string mkl_instructions(CpuLevel level, std::string_view maker, CpuLevel level_of_cpu);

/// The environment that makes the three libraries compute at this level. Set it before they are loaded.
std::vector<EnvironmentSetting> environment_for_level(CpuLevel level);

}  // namespace millrace
