#include "models/engines/threads.hpp"

#include <dlfcn.h>
#include <malloc.h>
#if __has_include(<gperftools/malloc_extension.h>)
#include <gperftools/malloc_extension.h>
#define MILLRACE_HAS_GPERFTOOLS
#endif

#include <cstdlib>

namespace millrace {
#ifdef MILLRACE_HAS_GPERFTOOLS
namespace {

// Looked up at run time, since only some programs link tcmalloc. Null in the others.
MallocExtension* find_tcmalloc() {
  void* const instance = dlsym(RTLD_DEFAULT, "_ZN15MallocExtension8instanceEv");
  return instance == nullptr ? nullptr : reinterpret_cast<MallocExtension* (*)()>(instance)();
}

}  // namespace
#endif

std::vector<EnvironmentSetting> environment_for_teams(int threads) {
  return {{"OMP_WAIT_POLICY", "passive", true},
          // Not the user's value, because the plan fixes the size of a team.
          {"OMP_NUM_THREADS", std::to_string(threads)},
          {"OMP_DYNAMIC", "false"},
          {"OMP_PROC_BIND", "false", true}};
}

void set_environment(const std::vector<EnvironmentSetting>& settings) {
  for (const EnvironmentSetting& setting : settings) {
    if (setting.value.empty()) {
      unsetenv(setting.name.c_str());
    } else {
      setenv(setting.name.c_str(), setting.value.c_str(), setting.keep_users ? 0 : 1);
    }
  }
}

void keep_freed_memory() {
#ifdef MILLRACE_HAS_GPERFTOOLS
  if (std::getenv("TCMALLOC_RELEASE_RATE") != nullptr) return;
  // Setting its environment variable would be too late: tcmalloc reads it before main.
  if (MallocExtension* const tcmalloc = find_tcmalloc()) tcmalloc->SetMemoryReleaseRate(0);
#endif
}

void release_freed_memory() {
#ifdef MILLRACE_HAS_GPERFTOOLS
  if (MallocExtension* const tcmalloc = find_tcmalloc()) {
    tcmalloc->ReleaseFreeMemory();
    return;
  }
#endif
  malloc_trim(0);
}

}  // namespace millrace
