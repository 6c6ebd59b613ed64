#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/engines/threads.hpp"

namespace millrace {

/// The instructions that LibTorch, oneDNN and MKL compute with, lowest first. Results differ between levels in their
/// last bits, so the plan names one. A CPU that has a level has those below it.
enum class CpuLevel { sse41, avx2, avx512 };

/// "sse4.1", "avx2", "avx512"
std::string_view name_of(CpuLevel level);
std::optional<CpuLevel> cpu_level_of(std::string_view name);

/// The highest level of this CPU.
CpuLevel level_of_cpu();

/// The value of an environment variable, or nothing.
using Environment = std::function<const char*(const char* name)>;

/// `highest`, or less where the user's environment asks one of the three libraries for less: ATEN_CPU_CAPABILITY,
/// ONEDNN_MAX_CPU_ISA (or DNNL_MAX_CPU_ISA), MKL_ENABLE_INSTRUCTIONS and MKL_CBWR. Words that the library does not know
/// count for nothing, as there.
CpuLevel lowered_by(const Environment& environment, CpuLevel highest);

/// What runs on this machine use where nothing else is asked for: level_of_cpu(), lowered by the environment.
CpuLevel best_level();

/// What MKL computes with at this level: the level, where MKL can be held to it. That is every level of Intel's CPUs
/// and the lowest of all CPUs. At higher levels of other makers' CPUs it is the maker and the CPU's highest level:
/// "AuthenticAMD avx512".
std::string mkl_instructions(CpuLevel level);
/// The same for a CPU of that maker (as CPUID names it) with that highest level.
std::string mkl_instructions(CpuLevel level, std::string_view maker, CpuLevel level_of_cpu);

/// What the three libraries must find in the environment when they are loaded, to compute at this level.
std::vector<EnvironmentSetting> environment_for_level(CpuLevel level);

}  // namespace millrace
