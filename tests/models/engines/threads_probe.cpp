// A program for threads_test: starts itself anew if it must, then says what it found.
#include <cstdio>
#include <cstdlib>

#include "models/engines/threads.hpp"

int main(int argc, char** argv) {
  const bool ready = millrace::reexec_with_environment(argv, millrace::environment_for_teams(3));
  std::printf("ready=%d argc=%d argv0=%s last=%s", ready ? 1 : 0, argc, argv[0], argv[argc - 1]);
  for (const char* name : {"OMP_WAIT_POLICY", "OMP_NUM_THREADS", "OMP_DYNAMIC", "MILLRACE_STARTED_ANEW"}) {
    const char* value = std::getenv(name);
    std::printf(" %s=%s", name, value == nullptr ? "-" : value);
  }
  std::printf("\n");
}
