#pragma once

#include <string>
#include <vector>

namespace millrace {

/// An environment variable that a library reads once, when it is loaded.
struct EnvironmentSetting {
  std::string name;
  std::string value;        ///< empty: the variable is removed
  bool keep_users = false;  ///< a value that the user has set stays
};

/// What LibTorch's OpenMP must find at its start for teams of `threads`:
///   OMP_WAIT_POLICY=passive  a team that waits must not spin: beside one busy thread a spinning team takes three times
///   as long
///   OMP_NUM_THREADS, OMP_DYNAMIC=false  teams of one size: results depend on it in their last bits
///   OMP_PROC_BIND=false      bound teams of several lanes would share cores while others idle
std::vector<EnvironmentSetting> environment_for_teams(int threads);

/// Sets them for this process. Call it before LibTorch is opened, while there is one thread: others may read the
/// environment.
void set_environment(const std::vector<EnvironmentSetting>& settings);

/// Large blocks stay with the process: giving them back costs a page fault for each page, each time. A
/// TCMALLOC_RELEASE_RATE that the user has set stays. Nothing happens where the allocator is another.
void keep_freed_memory();

}  // namespace millrace
