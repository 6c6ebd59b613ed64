#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace millrace {

/// Thrown by any body to end the whole run: nothing is admitted or committed any more. Any other exception concerns
/// only the frame or the batch it met (one thrown by `next`, `commit` or a lane's start and stop ends the run as well).
/// Derive from it to carry more, such as an exit code: the exception reaches `Result::error` as it was thrown.
class RunError : public std::runtime_error {
 public:
  RunError(std::string stage, const std::string& message)
      : std::runtime_error(stage + ": " + message), stage_(std::move(stage)) {}
  [[nodiscard]] const std::string& stage() const noexcept { return stage_; }

 private:
  std::string stage_;
};

}  // namespace millrace
