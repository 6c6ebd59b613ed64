#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gpu/stream.hpp"

namespace millrace {

/// A GPU as the driver describes it.
struct CudaDevice {
  std::string name;
  std::string bus;           ///< PCI bus id
  int major = 0, minor = 0;  ///< compute capability
  std::int64_t memory_bytes = 0;
  int multiprocessors = 0;
};

/// How many GPUs there are; 0 without a driver.
int cuda_device_count();
CudaDevice cuda_device(int ordinal);
/// Why there are none, as CUDA says it; empty where there are.
std::string why_no_cuda_device();

/// Profilers that were told to wait for it record between these.
void start_cuda_profiler() noexcept;
void stop_cuda_profiler() noexcept;

/// A stream on a GPU; what fails there throws DeviceError. It never uses the default stream, and wait() sleeps on an
/// event. Its functions are called by one thread; memory may be let go by any. Profilers show the stream as `name`.
std::unique_ptr<Stream> make_cuda_stream(int ordinal, const std::string& name);

}  // namespace millrace
