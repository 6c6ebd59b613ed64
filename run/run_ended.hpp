#pragma once

#include <exception>
#include <string>

#include "pipeline/run_error.hpp"

namespace millrace {

/// Ends the run after an error of storage or of a device in a stage.
/// It is a RunError, because the graph treats any other exception of a stage as a failure of the frame or batch.
class RunEnded final : public RunError {
 public:
  template <class Error>
  RunEnded(const std::string& stage, const Error& error)
      : RunError(stage, error.what()), cause_(std::make_exception_ptr(error)) {}
  /// The original error.
  const std::exception_ptr& cause() const { return cause_; }

 private:
  std::exception_ptr cause_;
};

}  // namespace millrace
