#include "models/engines/cpu_level.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <utility>

namespace millrace {
namespace {

std::string lowered(const std::map<std::string, std::string>& variables, CpuLevel highest = CpuLevel::avx512) {
  const auto environment = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  return std::string(name_of(lowered_by(environment, highest)));
}

constexpr std::array all_levels{CpuLevel::sse41, CpuLevel::avx2, CpuLevel::avx512, CpuLevel::avx512_bf16,
                                CpuLevel::amx};

TEST_CASE("levels are converted to names and back") {
  for (const CpuLevel level : all_levels) CHECK(cpu_level_of(name_of(level)) == level);
  CHECK(std::is_sorted(all_levels.begin(), all_levels.end()));
  for (const char* name : {"", "avx", "AVX2", "auto", "sse41"}) CHECK_FALSE(cpu_level_of(name).has_value());
}

TEST_CASE("each variable in the environment of a level asks for that level") {
  for (const CpuLevel level : {CpuLevel::sse41, CpuLevel::avx2, CpuLevel::avx512}) {
    const auto settings = environment_for_level(level);
    CHECK(settings.size() == 4);
    for (const auto& setting : settings) {
      CAPTURE(setting.name);
      CHECK_FALSE(setting.keep_users);
      if (setting.value.empty()) {
        CHECK(setting.name == "MKL_CBWR");  // has a value for the lowest level only
        CHECK(level > CpuLevel::sse41);
      } else {
        CHECK(lowered({{setting.name, setting.value}}) == name_of(level));  // each variable alone
      }
    }
  }
}

TEST_CASE("the environment of a level with bf16 asks for that level") {
  for (const CpuLevel level : {CpuLevel::avx512, CpuLevel::avx512_bf16, CpuLevel::amx}) {
    std::map<std::string, std::string> variables;
    for (const auto& setting : environment_for_level(level)) {
      if (!setting.value.empty()) variables[setting.name] = setting.value;
    }
    CHECK(lowered(variables, CpuLevel::amx) == name_of(level));
    CHECK(has_bf16(level) == (level != CpuLevel::avx512));
    CHECK(fp32_level(level) == CpuLevel::avx512);
  }
  CHECK(fp32_level(CpuLevel::avx2) == CpuLevel::avx2);
}

TEST_CASE("a variable without a value for a level is removed, even if the user has set it") {
  const char* before = std::getenv("MKL_CBWR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("MKL_CBWR", "AUTO", 1);
  for (const auto& setting : environment_for_level(CpuLevel::avx2)) {
    if (setting.name == "MKL_CBWR") set_environment({setting});
  }
  CHECK(std::getenv("MKL_CBWR") == nullptr);
  if (before != nullptr) setenv("MKL_CBWR", kept.c_str(), 1);
}

TEST_CASE("the user's environment lowers the level") {
  CHECK(lowered({}) == "avx512");
  CHECK(lowered({{"ATEN_CPU_CAPABILITY", "default"}}) == "sse4.1");
  CHECK(lowered({{"ATEN_CPU_CAPABILITY", "avx2"}}) == "avx2");
  CHECK(lowered({{"ONEDNN_MAX_CPU_ISA", "avx2"}}) == "avx2");  // oneDNN ignores upper and lower case
  CHECK(lowered({{"ONEDNN_MAX_CPU_ISA", "AVX2_VNNI_2"}}) == "avx2");
  CHECK(lowered({{"ONEDNN_MAX_CPU_ISA", "AVX"}}) == "sse4.1");  // the highest level within AVX
  CHECK(lowered({{"DNNL_MAX_CPU_ISA", "SSE41"}}) == "sse4.1");
  for (const auto& [word, level] : {std::pair{"AVX512_CORE", "avx512"},
                                    {"avx512_core_vnni", "avx512"},
                                    {"AVX512_CORE_BF16", "avx512_bf16"},
                                    {"AVX512_CORE_FP16", "avx512_bf16"},
                                    {"AVX512_CORE_AMX", "amx"},
                                    {"AVX512_CORE_AMX_FP16", "amx"},
                                    {"AVX10_1_512", "amx"},
                                    {"DEFAULT", "amx"}}) {
    CAPTURE(word);
    CHECK(lowered({{"ONEDNN_MAX_CPU_ISA", word}}, CpuLevel::amx) == level);
  }
  CHECK(lowered({{"ONEDNN_MAX_CPU_ISA", "AVX2"}, {"DNNL_MAX_CPU_ISA", "SSE41"}}) == "avx2");  // the newer name wins
  CHECK(lowered({{"MKL_ENABLE_INSTRUCTIONS", "SSE4_2"}}) == "sse4.1");
  CHECK(lowered({{"MKL_ENABLE_INSTRUCTIONS", "AVX2_E1"}}) == "avx2");
  for (const char* branch : {"COMPATIBLE", "SSE4_2", "SSSE3", "AVX", "branch=sse2"}) {
    CAPTURE(branch);
    CHECK(lowered({{"MKL_CBWR", branch}}) == "sse4.1");
  }
  for (const char* branch : {"AVX2", "AVX2,STRICT", "BRANCH=AVX2"}) CHECK(lowered({{"MKL_CBWR", branch}}) == "avx2");
  CHECK(lowered({{"ATEN_CPU_CAPABILITY", "avx2"}, {"MKL_ENABLE_INSTRUCTIONS", "SSE4_2"}}) == "sse4.1");
}

TEST_CASE("the user's environment never raises the level, and unknown values have no effect") {
  CHECK(lowered({{"ATEN_CPU_CAPABILITY", "avx512"}}, CpuLevel::avx2) == "avx2");
  for (const char* word : {"AVX512_CORE", "AVX512_CORE_AMX", "AVX10_1_512", "DEFAULT", "ALL", "", "rubbish"}) {
    CAPTURE(word);
    CHECK(lowered({{"ONEDNN_MAX_CPU_ISA", word}}) == "avx512");
  }
  for (const char* word : {"AVX512", "AVX512_E4", "", "sse"})
    CHECK(lowered({{"MKL_ENABLE_INSTRUCTIONS", word}}) == "avx512");
  for (const char* word : {"AUTO", "OFF", "AVX512", "AVX512_E1,STRICT", ""})
    CHECK(lowered({{"MKL_CBWR", word}}) == "avx512");
  for (const char* word : {"AVX2", "", "avx"}) CHECK(lowered({{"ATEN_CPU_CAPABILITY", word}}) == "avx512");
}

TEST_CASE("if MKL ignores the level, its name has the maker and the level of the CPU") {
  CHECK(mkl_instructions(CpuLevel::avx2, "GenuineIntel", CpuLevel::avx512) == "avx2");
  CHECK(mkl_instructions(CpuLevel::avx2, "AuthenticAMD", CpuLevel::avx512) == "AuthenticAMD avx512");
  CHECK(mkl_instructions(CpuLevel::avx2, "AuthenticAMD", CpuLevel::avx2) == "AuthenticAMD avx2");
  CHECK(mkl_instructions(CpuLevel::sse41, "AuthenticAMD", CpuLevel::avx512) == "sse4.1");
  CHECK(mkl_instructions(CpuLevel::avx512, "AuthenticAMD", CpuLevel::avx512_bf16) == "AuthenticAMD avx512");
  CHECK(mkl_instructions(CpuLevel::avx512_bf16, "AuthenticAMD", CpuLevel::avx512_bf16) == "AuthenticAMD avx512_bf16");
  CHECK(mkl_instructions(CpuLevel::amx, "GenuineIntel", CpuLevel::amx) == "amx");
  CHECK(mkl_instructions(level_of_cpu()).ends_with(name_of(level_of_cpu())));
}

}  // namespace
}  // namespace millrace
