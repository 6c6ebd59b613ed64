#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <string_view>

/// Adds one to the count of this name. The libraries that libraries.py makes call it too.
extern "C" void fake_cuda_count(const char* name);
/// Counts a launch through the driver.
extern "C" void fake_cuda_launched(const void* stream);

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

}  // namespace fake_cuda
