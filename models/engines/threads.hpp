#pragma once

#include <string>
#include <vector>

namespace millrace {

/// An environment variable that a library reads once, when it is loaded.
struct EnvironmentSetting {
  std::string name;
  std::string value;        ///< empty: remove the variable
  bool keep_users = false;  ///< keep a value that the user has set
};

/// The environment that LibTorch's OpenMP needs at its start, for teams of `threads`.
/// - OMP_WAIT_POLICY=passive: a waiting team must not spin.
///   Next to one busy thread, a spinning team takes three times as long.
/// - OMP_NUM_THREADS and OMP_DYNAMIC=false: the last bits of results depend on the size of the team.
/// - OMP_PROC_BIND=false: bound teams of several lanes would share some cores while other cores idle.
std::vector<EnvironmentSetting> environment_for_teams(int threads);

/// Sets the variables for this process. Call it before LibTorch is opened.
/// Call it while the process has one thread: setenv is not safe while others read the environment.
void set_environment(const std::vector<EnvironmentSetting>& settings);

/// Makes tcmalloc keep freed memory. If it returns a large block to the system, each page costs a page fault later.
/// Does nothing with another allocator, or if the user has set TCMALLOC_RELEASE_RATE.
void keep_freed_memory();

/// Returns freed memory to the system, so that the size of the process shows the memory in use.
void release_freed_memory();

}  // namespace millrace
