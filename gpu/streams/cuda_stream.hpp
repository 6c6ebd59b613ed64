#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gpu/stream.hpp"

namespace millrace {

/// A GPU, as its driver describes it.
struct CudaDevice {
  std::string name;
  std::string bus;           ///< PCI bus id
  int major = 0, minor = 0;  ///< compute capability
  std::int64_t memory_bytes = 0;
  int multiprocessors = 0;
};

/// Returns the number of GPUs; 0 without a driver.
int cuda_device_count();
CudaDevice cuda_device(int ordinal);
/// Returns CUDA's reason why there is no GPU. Empty if there is one.
std::string why_no_cuda_device();

/// Start and stop the recording of profilers that wait for these calls.
void start_cuda_profiler() noexcept;
void stop_cuda_profiler() noexcept;

/// Makes a stream on a GPU. Failures throw DeviceError. It is not the default stream, and wait() sleeps on an event.
/// One thread calls its functions; any thread may free its memory. Profilers show the stream as `name`.
std::unique_ptr<Stream> make_cuda_stream(int ordinal, const std::string& name);

}  // namespace millrace
