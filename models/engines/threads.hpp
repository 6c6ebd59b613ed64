#pragma once

#include <string>
#include <vector>

namespace millrace {

/// An environment variable that a library reads once, when it is loaded.
struct EnvironmentSetting {
  std::string name;
  std::string value;
  bool keep_users = false;  ///< a value that the user has set stays
};

/// What LibTorch's OpenMP and the allocator must find at their start for teams of `threads`:
///   OMP_WAIT_POLICY=passive  a team that waits must not spin: beside one busy thread a spinning team takes three times
///   as long OMP_NUM_THREADS, OMP_DYNAMIC=false  teams of one size: results depend on it in their last bits
///   OMP_PROC_BIND=false      bound teams of several lanes would share cores while others idle
///   TCMALLOC_*               large blocks stay with the process; giving them back costs a page fault for each page,
///   each time
std::vector<EnvironmentSetting> environment_for_teams(int threads);

/// Starts this program anew, with the same arguments, when a setting is not in the environment yet; returns when all
/// are. libgomp reads its variables before main(), so setting them there is too late. Call it first in main(). When the
/// program cannot be started anew, it goes on as it is and returns false.
bool reexec_with_environment(char** argv, const std::vector<EnvironmentSetting>& settings);

}  // namespace millrace
