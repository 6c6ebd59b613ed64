#pragma once

#include <algorithm>
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
/// The last two are AVX-512 with arithmetic in bf16: AVX512-BF16, and AMX. Runs in fp32 do not use them.
enum class CpuLevel { sse41, avx2, avx512, avx512_bf16, amx };

/// "sse4.1", "avx2", "avx512", "avx512_bf16", "amx"
std::string_view name_of(CpuLevel level);
std::optional<CpuLevel> cpu_level_of(std::string_view name);

/// Whether models can compute in bf16 at this level.
constexpr bool has_bf16(CpuLevel level) { return level >= CpuLevel::avx512_bf16; }

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

/// The highest level of runs on this machine: level_of_cpu(), lowered by the environment.
CpuLevel best_level();

/// The highest level for fp32. Levels with bf16 compute nothing faster in fp32, and fewer CPUs can repeat their results.
constexpr CpuLevel fp32_level(CpuLevel best) { return std::min(best, CpuLevel::avx512); }

/// The instructions that MKL uses when a run computes at this level.
/// On Intel's CPUs, and for the lowest level on all CPUs, MKL can be limited to the level: the result is its name.
/// On other CPUs, the result is the maker and the CPU's highest level: "AuthenticAMD avx512".
std::string mkl_instructions(CpuLevel level);
/// The same for a CPU of that maker (as CPUID names it) with that highest level.
std::string mkl_instructions(CpuLevel level, std::string_view maker, CpuLevel level_of_cpu);

/// The environment that makes the three libraries compute at this level. Set it before they are loaded.
std::vector<EnvironmentSetting> environment_for_level(CpuLevel level);

}  // namespace millrace
