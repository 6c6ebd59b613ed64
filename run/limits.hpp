#pragma once

#include <stdexcept>

#include "run/resolve.hpp"

namespace millrace {

/// The system gives this run less than it needs: threads, open files or address space. The message says how much of
/// what, and how to change either. The program ends with exit code 5.
class LimitError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Checks before anything is begun that the system's limits (ulimit) let a run with these numbers come to its end: the
/// libraries that start threads and take memory later on do not survive a refusal. Raises the soft limit of open files
/// to the hard one, and starts the run's number of threads once to see that it may. Throws LimitError.
void check_limits(const Numbers& numbers);

}  // namespace millrace
