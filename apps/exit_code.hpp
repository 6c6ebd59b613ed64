#pragma once

#include <exception>

namespace millrace {

/// The exit codes of the program, as docs/resume_and_repair.md publishes them. After a resumable code, the same
/// command continues the run.
enum class ExitCode {
  ok = 0,             ///< the command did all of its work; no item failed
  internal = 1,       ///< a bug in Millrace
  usage = 2,          ///< wrong command line or recipe, or no pictures
  some_failed = 3,    ///< finished, but some items failed, each with a reason, or some folders could not be listed
  environment = 5,    ///< a problem with a model, a codec, a device, or a limit of the system
  storage = 6,        ///< writing failed, resumable; or an estimate says that a run does not fit on the disk
  locked = 7,         ///< another run writes to this output
  mismatch = 8,       ///< the output is damaged or belongs to another plan
  interrupted = 130,  ///< Ctrl-C; resumable
  terminated = 143,   ///< SIGTERM; resumable
};

/// The exit code for an exception that ended the program; `internal` for unknown ones.
ExitCode exit_code_of(const std::exception_ptr& thrown);

}  // namespace millrace
