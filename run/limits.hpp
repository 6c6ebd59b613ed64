#pragma once

#include <stdexcept>

#include "run/resolve.hpp"

namespace millrace {

/// The system allows fewer threads, open files or less address space than this run needs.
/// The message gives the numbers and says how to change the limit or the run. The program ends with exit code 5.
class LimitError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Checks that the system's limits (ulimit) allow a run with these numbers. Throws LimitError if they do not.
/// Call it before the run starts: libraries that later start threads or take memory do not survive a refusal.
/// Raises the soft limit of open files to the hard limit.
/// Starts as many threads as the run needs, and ends them, to see that the system allows them.
/// `more_files`: open files that the run needs for other things than pictures and results.
void check_limits(const ResolvedConfig& resolved, int more_files = 0);

}  // namespace millrace
