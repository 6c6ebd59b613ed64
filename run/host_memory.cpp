#include "run/host_memory.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>

#include "pipeline/cores.hpp"

namespace millrace {
namespace {

constexpr std::int64_t kilobyte = 1024;  // of the files in /proc

std::optional<std::int64_t> number_in(const std::string& file) {
  std::ifstream stream(file);
  std::int64_t number = 0;
  // Without a limit, memory.max says "max", which does not read as a number.
  return stream >> number ? std::optional(number) : std::nullopt;
}

/// The number after a word at the start of a line, such as "MemAvailable:".
std::optional<std::int64_t> number_after(const std::string& file, const std::string& word) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(word) && line.size() > word.size() && std::isspace(line[word.size()]) != 0)
      return std::strtoll(line.c_str() + word.size(), nullptr, 10);
  }
  return std::nullopt;
}

/// The bytes that a cgroup leaves; nothing if it sets no limit.
std::optional<std::int64_t> left_in(const std::string& folder) {
  auto limit = number_in(folder + "/memory.max");
  auto used = number_in(folder + "/memory.current");
  const bool v2 = limit.has_value();
  if (!v2) {
    limit = number_in(folder + "/memory.limit_in_bytes");
    used = number_in(folder + "/memory.usage_in_bytes");
  }
  if (!limit || !used) return std::nullopt;
  // The kernel frees cached files first. In version 1, the names of sums over groups below have a prefix.
  std::int64_t cache = 0;
  for (const std::string name : {"active_file", "inactive_file"}) {
    const auto bytes = number_after(folder + "/memory.stat", (v2 ? "" : "total_") + name);
    cache += bytes.value_or(0);
  }
  return std::max<std::int64_t>(*limit - *used + cache, 0);
}

/// The bytes that ulimit -v leaves; nothing if it sets no limit.
std::optional<std::int64_t> left_of_address_space(const std::string& proc) {
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const auto pages = number_in(proc + "/self/statm");  // the first number: all mapped pages
  return std::max<std::int64_t>(static_cast<std::int64_t>(space.rlim_cur) - pages.value_or(0) * sysconf(_SC_PAGESIZE),
                                0);
}

}  // namespace

std::optional<std::int64_t> available_memory(const std::string& proc, const std::string& mount) {
  auto available = number_after(proc + "/meminfo", "MemAvailable:");
  if (available) *available *= kilobyte;
  // The limit of a cgroup also limits the groups below it, so every level counts.
  for (const std::string& folder : cgroups("memory", proc, mount)) {
    if (const auto left = left_in(folder)) available = std::min(available.value_or(*left), *left);
  }
  if (const auto left = left_of_address_space(proc)) available = std::min(available.value_or(*left), *left);
  return available;
}

std::optional<std::int64_t> resident_memory() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  // Both are numbers of pages.
  return statm >> size >> resident ? std::optional(resident * sysconf(_SC_PAGESIZE)) : std::nullopt;
}

std::optional<std::int64_t> peak_memory() {
  auto peak = number_after("/proc/self/status", "VmHWM:");
  if (peak) *peak *= kilobyte;
  return peak;
}

int lanes_that_fit(std::int64_t available, std::int64_t weights, std::int64_t largest, int batch_size) {
  // Segmenters get one picture a call on the host, so only detectors and embedders need more for a batch.
  constexpr std::int64_t of_a_picture = 256LL << 20, of_another = 64LL << 20;
  constexpr int most = 1024;
  const std::int64_t lane = of_a_picture + of_another * (batch_size - 1) + largest + largest / 2;
  return static_cast<int>(std::clamp<std::int64_t>((available / 2 - weights) / lane, 1, most));
}

}  // namespace millrace
