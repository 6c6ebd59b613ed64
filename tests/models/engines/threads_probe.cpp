// A program for threads_test: sets the environment as a run does before it opens LibTorch, and prints what libraries find.
#include <cstdio>
#include <cstdlib>
#if __has_include(<gperftools/malloc_extension.h>)
#include <dlfcn.h>
#include <gperftools/malloc_extension.h>
#endif

#include "models/engines/threads.hpp"

int main() {
  millrace::set_environment(millrace::environment_for_teams(3));
  millrace::keep_freed_memory();
  for (const char* name : {"OMP_WAIT_POLICY", "OMP_NUM_THREADS", "OMP_DYNAMIC", "OMP_PROC_BIND"}) {
    const char* value = std::getenv(name);
    std::printf("%s=%s ", name, value == nullptr ? "-" : value);
  }
#if __has_include(<gperftools/malloc_extension.h>)
  if (void* instance = dlsym(RTLD_DEFAULT, "_ZN15MallocExtension8instanceEv"); instance != nullptr) {
    std::printf("release_rate=%.1f\n", reinterpret_cast<MallocExtension* (*)()>(instance)()->GetMemoryReleaseRate());
    return 0;
  }
#endif
  std::printf("no tcmalloc\n");
}
