#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

/// Adds one to the count of this name. The libraries that libraries.py makes call it too.
extern "C" void fake_cuda_count(const char* name);
/// fake_cuda::put() for these libraries. Returns 0 if the operation was done or captured.
extern "C" int fake_cuda_put(const char* name, const char* kind, const void* stream);
/// The same for a launch by the driver. The name of the kernel may be null.
extern "C" int fake_cuda_launch(const char* kernel, const void* stream);

namespace fake_cuda {

struct Grid {
  dim3 blocks, threads;  ///< threads of a block
};

/// Does the work of a kernel of Millrace on the host, with the bodies of gpu/ops.
/// `name` is demangled; `arguments` are those of the launch. Ends the process if the grid does not fit the work.
/// Returns for how many nanoseconds it occupies its stream. Of kernels of others, it runs only CUB's sum.
std::uint64_t run_kernel(std::string_view name, const Grid& grid, void** arguments);

std::int64_t count_of(const std::string& name);

/// Keeps the error for cudaGetLastError() of this thread, and returns it.
cudaError_t failed(cudaError_t error);

/// Guards the state of the runtime.
std::recursive_mutex& mutex();

/// Puts an operation on a stream. Counts it as `name`, and as "`kind` on the default stream".
/// Nothing: the caller must do its work. Otherwise the answer for the program, which ends the call: cudaSuccess if a
/// capture took the operation (it is not counted then), or an error. A profiler sees it as `kernel`, or else as `name`.
std::optional<cudaError_t> put(cudaStream_t stream, const char* name, const char* kind, std::string_view kernel = {});

/// Shows an operation that was done to a profiler, unless it is a copy.
void profile(std::string_view kernel, std::string_view kind);

/// Whether this thread has put an operation on a stream before.
bool is_lane();

/// The operation that was put last on this stream takes so long.
void occupy(cudaStream_t stream, std::uint64_t ns);

/// What CUDA calls potentially unsafe: a capture would not see what the call does. Returns false if no capture forbids
/// it to this thread. Otherwise it ends these captures, keeps the error for cudaGetLastError(), and counts the call as
/// "`name` during a capture". The caller returns cudaErrorStreamCaptureUnsupported.
bool forbidden(const char* name);

/// All work on the default stream is done.
void finish_default_stream();

}  // namespace fake_cuda
