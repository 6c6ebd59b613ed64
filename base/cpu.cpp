#include "base/cpu.hpp"

#include <unistd.h>

#include <fstream>

namespace millrace {
namespace {

/// A value of the first processor in /proc/cpuinfo; empty if the key is missing.
std::string cpu_value(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(": ");
    return colon == std::string::npos ? "" : line.substr(colon + 2);
  }
  return "";
}

}  // namespace

std::string cpu_name() { return cpu_value("model name"); }

std::string cpu_features() {
  // Spaces around it, so that "avx512f" is not found inside a longer name.
  const std::string flags = " " + cpu_value("flags") + " ";
  std::string found;
  // bench/gpu/processor.py has the same list.
  for (const char* feature : {"avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16"}) {
    if (flags.find(" " + std::string(feature) + " ") != std::string::npos)
      found += (found.empty() ? "" : " ") + std::string(feature);
  }
  return found;
}

std::int64_t memory_of_machine() {
  return std::int64_t{sysconf(_SC_PHYS_PAGES)} * std::int64_t{sysconf(_SC_PAGE_SIZE)};
}

}  // namespace millrace
