#pragma once

#include <exception>

namespace millrace {

/// What the program ends with; the README publishes it.
enum class ExitCode {
  ok = 0,             ///< every planned item is accounted for and none failed
  internal = 1,       ///< a bug: a broken promise of our own
  usage = 2,          ///< command line, recipe, or no pictures
  some_failed = 3,    ///< finished; some items failed, each with a reason
  environment = 5,    ///< model, codec, device, or a limit of the system
  storage = 6,        ///< writing failed; resumable
  locked = 7,         ///< another run writes to this output
  mismatch = 8,       ///< the output belongs to another plan
  interrupted = 130,  ///< Ctrl-C; resumable
  terminated = 143,   ///< SIGTERM; resumable
};

/// The code that belongs to an exception which ended the program.
ExitCode exit_code_of(const std::exception_ptr& thrown);

}  // namespace millrace
