#include "pipeline/cores.hpp"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace millrace {
namespace {

double allowed_by_affinity() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  // The call fails with more than 1,024 cores, because the mask does not fit into cpu_set_t.
  return std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace

std::int64_t process_cpu_ns() noexcept {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::optional<double> cpu_quota(const std::string& folder) {
  double limit = 0;
  double period = 0;
  // Without a limit the file says "max 100000", which does not read as a number.
  if (std::ifstream v2(folder + "/cpu.max"); v2 >> limit >> period && period > 0) return limit / period;
  std::ifstream v1_limit(folder + "/cpu.cfs_quota_us");
  std::ifstream v1_period(folder + "/cpu.cfs_period_us");
  // A quota of -1 means no limit.
  if (v1_limit >> limit && v1_period >> period && limit > 0 && period > 0) return limit / period;
  return std::nullopt;
}

std::vector<std::string> cgroups(const std::string& controller, const std::string& proc, const std::string& mount) {
  std::vector<std::string> folders;
  // In a container, `group` can be a path that only the host has. Then its folders do not exist and set no limit.
  const auto add_with_parents = [&](const std::string& hierarchy, std::string group) {
    for (;;) {
      folders.push_back(hierarchy + group);
      const auto slash = group.rfind('/');
      if (slash == std::string::npos) return;
      group.resize(slash);
    }
  };
  std::ifstream groups(proc + "/self/cgroup");
  // A line is hierarchy:controllers:path, in v2 without controllers.
  for (std::string line; std::getline(groups, line);) {
    std::istringstream fields(line);
    std::string hierarchy;
    std::string controllers;
    std::string path;
    std::getline(fields, hierarchy, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, path);
    // Commas around the name, because v1 has the controllers cpu, cpuset and cpuacct.
    if (controllers.empty()) {
      add_with_parents(mount, path);
    } else if (("," + controllers + ",").find("," + controller + ",") != std::string::npos) {
      add_with_parents(mount + "/" + controller, path);
    }
  }
  return folders;
}

double available_cores() {
  double cores = allowed_by_affinity();
  // The quota of a cgroup also limits the groups below it, so every level counts.
  for (const std::string& folder : cgroups("cpu", "/proc", "/sys/fs/cgroup")) {
    if (const auto limit = cpu_quota(folder)) cores = std::min(cores, *limit);
  }
  return std::max(cores, 0.01);
}

}  // namespace millrace
