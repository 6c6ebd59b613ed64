#pragma once

#include <stdexcept>

namespace millrace {

/// A call of CUDA that failed. The message names the call, CUDA's error and what it says.
struct CudaError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace millrace
