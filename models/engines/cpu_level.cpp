#include "models/engines/cpu_level.hpp"

#include <cpuid.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <cstring>

namespace millrace {
namespace {

// A level's name, and the words of the three libraries for it.
// MKL obeys `mkl` on Intel's CPUs only. It obeys `mkl_branch` on all CPUs, so the lowest level has one.
// The other levels have none, since any branch, even AUTO, makes MKL compute in other blocks.
struct Row {
  CpuLevel level;
  const char *name, *aten, *onednn, *mkl, *mkl_branch;
};
constexpr std::array<Row, 5> table{
    {{CpuLevel::sse41, "sse4.1", "default", "SSE41", "SSE4_2", "COMPATIBLE"},
     {CpuLevel::avx2, "avx2", "avx2", "AVX2", "AVX2", nullptr},
     {CpuLevel::avx512, "avx512", "avx512", "AVX512_CORE", "AVX512", nullptr},
     {CpuLevel::avx512_bf16, "avx512_bf16", "avx512", "AVX512_CORE_BF16", "AVX512_E2", nullptr},
     {CpuLevel::amx, "amx", "avx512", "AVX512_CORE_AMX", "AVX512_E4", nullptr}}};

// A word with which a user limits a library, and the highest level within that limit.
// A longer word that begins with one of these, such as AVX2_VNNI, has the same level.
struct Word {
  std::string_view text;
  CpuLevel level;
};

constexpr std::array<Word, 2> aten_words{{{"default", CpuLevel::sse41}, {"avx2", CpuLevel::avx2}}};
// In each of these lists, longer words are first, because asked() compares beginnings.
// AVX alone is between two of our levels, so it counts as the lower one. AVX10 limits nothing.
// LibTorch computes in bf16 by oneDNN. So words for MKL do not limit AVX-512.
constexpr std::array<Word, 8> onednn_words{{{"SSE41", CpuLevel::sse41},
                                            {"AVX512_CORE_AMX", CpuLevel::amx},
                                            {"AVX512_CORE_FP16", CpuLevel::avx512_bf16},
                                            {"AVX512_CORE_BF16", CpuLevel::avx512_bf16},
                                            {"AVX512", CpuLevel::avx512},
                                            {"AVX10", CpuLevel::amx},
                                            {"AVX2", CpuLevel::avx2},
                                            {"AVX", CpuLevel::sse41}}};
constexpr std::array<Word, 5> mkl_words{{{"SSE4_2", CpuLevel::sse41},
                                         {"AVX512", CpuLevel::amx},
                                         {"AVX10", CpuLevel::amx},
                                         {"AVX2", CpuLevel::avx2},
                                         {"AVX", CpuLevel::sse41}}};
constexpr std::array<Word, 7> branch_words{{{"COMPATIBLE", CpuLevel::sse41},
                                            {"SSE", CpuLevel::sse41},
                                            {"SSSE3", CpuLevel::sse41},
                                            {"AVX512", CpuLevel::amx},
                                            {"AVX10", CpuLevel::amx},
                                            {"AVX2", CpuLevel::avx2},
                                            {"AVX", CpuLevel::sse41}}};

std::string upper(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

std::string without_prefix(const std::string& text, std::string_view prefix) {
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

// ATen compares whole words, in lower case only.
std::optional<CpuLevel> asked_of_aten(std::string_view text) {
  for (const Word& word : aten_words) {
    if (text == word.text) return word.level;
  }
  return std::nullopt;
}

template <std::size_t count>
std::optional<CpuLevel> asked(const std::array<Word, count>& words, const std::string& text) {
  for (const Word& word : words) {
    if (text.starts_with(word.text)) return word.level;
  }
  return std::nullopt;
}

// Leaf 0 of CPUID returns the maker's name in EBX, EDX and ECX, in this order.
std::string maker_of_cpu() {
  unsigned highest_leaf = 0;
  std::array<unsigned, 3> name{};
  if (__get_cpuid(0, &highest_leaf, &name[0], &name[2], &name[1]) == 0) return "unknown";
  std::string maker(sizeof name, '\0');
  std::memcpy(maker.data(), name.data(), sizeof name);
  return maker;
}

// The table has the order of CpuLevel.
const Row& row_of(CpuLevel level) { return table[static_cast<std::size_t>(level)]; }

}  // namespace

std::string_view name_of(CpuLevel level) { return row_of(level).name; }

std::optional<CpuLevel> cpu_level_of(std::string_view name) {
  for (const Row& row : table) {
    if (name == row.name) return row.level;
  }
  return std::nullopt;
}

CpuLevel level_of_cpu() {
  // The same features that LibTorch and oneDNN check.
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx512 && __builtin_cpu_supports("avx512bf16"))
    return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") ? CpuLevel::amx
                                                                                    : CpuLevel::avx512_bf16;
  if (avx512) return CpuLevel::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return CpuLevel::avx2;
  return CpuLevel::sse41;
}

CpuLevel lowered_by(const Environment& environment, CpuLevel highest) {
  CpuLevel level = highest;
  const auto lower = [&](std::optional<CpuLevel> to) {
    if (to) level = std::min(level, *to);
  };
  if (const char* text = environment("ATEN_CPU_CAPABILITY")) lower(asked_of_aten(text));
  // The second name is older. oneDNN reads it only if the first one is not set.
  const char* onednn = environment("ONEDNN_MAX_CPU_ISA");
  if (onednn == nullptr) onednn = environment("DNNL_MAX_CPU_ISA");
  if (onednn != nullptr) lower(asked(onednn_words, upper(onednn)));
  if (const char* text = environment("MKL_ENABLE_INSTRUCTIONS")) lower(asked(mkl_words, upper(text)));
  if (const char* text = environment("MKL_CBWR")) lower(asked(branch_words, without_prefix(upper(text), "BRANCH=")));
  return level;
}

CpuLevel best_level() {
  return lowered_by([](const char* name) { return std::getenv(name); }, level_of_cpu());
}

std::string mkl_instructions(CpuLevel level, std::string_view maker, CpuLevel level_of_cpu) {
  if (maker == "GenuineIntel" || level == CpuLevel::sse41) return std::string(name_of(level));
  // In fp32, MKL chooses among the first three.
  return std::string(maker) + " " + std::string(name_of(std::min(level_of_cpu, std::max(level, CpuLevel::avx512))));
}

std::string mkl_instructions(CpuLevel level) { return mkl_instructions(level, maker_of_cpu(), level_of_cpu()); }

std::vector<EnvironmentSetting> environment_for_level(CpuLevel level) {
  const Row& row = row_of(level);
  // An empty value removes the variable, because any value of MKL_CBWR may change MKL's results.
  return {{"ATEN_CPU_CAPABILITY", row.aten},
          {"ONEDNN_MAX_CPU_ISA", row.onednn},
          {"MKL_ENABLE_INSTRUCTIONS", row.mkl},
          {"MKL_CBWR", row.mkl_branch == nullptr ? "" : row.mkl_branch}};
}

}  // namespace millrace
