#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "gpu/stream.hpp"

namespace millrace {

/// A call of CUDA that failed, or a kernel that did; the device is of no more use to this process. The message names
/// the call, CUDA's error and what it says.
struct CudaError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A GPU as the driver describes it.
struct CudaDevice {
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  std::int64_t memory_bytes = 0;
  int multiprocessors = 0;
};

/// How many GPUs there are; 0 without a driver.
int cuda_device_count();
CudaDevice cuda_device(int ordinal);

/// A stream on a GPU. It never uses the default stream, and wait() sleeps on an event. Its functions are called by one
/// thread; memory may be let go by any.
std::unique_ptr<Stream> make_cuda_stream(int ordinal);

}  // namespace millrace
