#include "models/engines/threads.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace millrace {
namespace {

// There after the program was started anew; a second time would be an endless loop.
constexpr const char* marker = "MILLRACE_STARTED_ANEW";

bool is_set(const EnvironmentSetting& setting) {
  const char* value = std::getenv(setting.name.c_str());
  return value != nullptr && (setting.keep_users || setting.value == value);
}

}  // namespace

std::vector<EnvironmentSetting> environment_for_teams(int threads) {
  return {
      {"OMP_WAIT_POLICY", "passive", true}, {"OMP_NUM_THREADS", std::to_string(threads)}, {"OMP_DYNAMIC", "false"},
      {"OMP_PROC_BIND", "false", true},     {"TCMALLOC_RELEASE_RATE", "0", true},
  };
}

bool reexec_with_environment(char** argv, const std::vector<EnvironmentSetting>& settings) {
  const bool ready = std::all_of(settings.begin(), settings.end(), is_set);
  const bool again = std::getenv(marker) != nullptr;
  unsetenv(marker);  // programs that this one starts decide for themselves
  if (ready || again) return ready;
  // The real path rather than /proc/self/exe itself, which ps and killall would show as "exe".
  std::error_code error;
  std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error || !std::filesystem::exists(program, error)) program = "/proc/self/exe";
  for (const EnvironmentSetting& setting : settings) {
    if (!is_set(setting)) setenv(setting.name.c_str(), setting.value.c_str(), 1);
  }
  setenv(marker, "1", 1);
  execv(program.c_str(), argv);
  unsetenv(marker);
  return false;
}

}  // namespace millrace
