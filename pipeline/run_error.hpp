#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace millrace {

/// Thrown by a body to end the whole run: nothing more is admitted or committed.
/// Other exceptions fail only their frame or batch; for some bodies, they end the run too (see GraphBodies).
/// Derive from it to carry more, such as an exit code: `Result::error` is the exception as it was thrown.
class RunError : public std::runtime_error {
 public:
  RunError(std::string stage, const std::string& message)
      : std::runtime_error(stage + ": " + message), stage_(std::move(stage)) {}
  [[nodiscard]] const std::string& stage() const noexcept { return stage_; }

 private:
  std::string stage_;
};

}  // namespace millrace
