#pragma once

#include <string>
#include <vector>

namespace millrace {

class StopSignals;

/// How a program that ran as a child process ended.
struct ChildEnd {
  int exit_code = 0;     ///< meaningless if a signal ended it
  int signal = 0;        ///< that ended it, or 0
  std::string messages;  ///< what it wrote to stderr, at most its last 4 kB
};

/// Runs `millrace ARGUMENTS` as a child process and waits for its end. Its stdout is dropped; `messages_file` gets its
/// stderr. A signal that stops this process stops the child as well, and the child does not outlive it.
/// `signals` may be null. Throws std::system_error if it cannot be started.
ChildEnd run_child(const std::vector<std::string>& arguments, const std::string& messages_file, StopSignals* signals);

}  // namespace millrace
