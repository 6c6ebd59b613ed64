#pragma once

#include <exception>
#include <string>

#include "pipeline/run_error.hpp"

namespace millrace {

/// Storage or a device that fails in a stage ends the run; the graph lets only RunError do that.
class RunEnded final : public RunError {
 public:
  template <class Error>
  RunEnded(const std::string& stage, const Error& error)
      : RunError(stage, error.what()), cause_(std::make_exception_ptr(error)) {}
  const std::exception_ptr& cause() const { return cause_; }

 private:
  std::exception_ptr cause_;
};

}  // namespace millrace
