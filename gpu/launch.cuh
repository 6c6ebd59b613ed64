#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <new>
#include <string>

#include "gpu/stream.hpp"

/// Helpers of streams and operations on a GPU.
namespace millrace {

/// Throws std::bad_alloc if memory ran out, else DeviceError. `what` names the failed call.
inline void check(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that the next launch does not report it
  if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw DeviceError(what + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
}

inline void check_launch(const char* kernel) { check(cudaGetLastError(), std::string("the launch of ") + kernel); }

inline cudaStream_t cuda_stream(const Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

inline unsigned blocks_of(std::int64_t threads, int block) {
  return static_cast<unsigned>((threads + block - 1) / block);
}

/// Rounds to nearest, like base/half.hpp.
__device__ inline void put(float* out, float value) { *out = value; }
__device__ inline void put(__half* out, float value) { *out = __float2half_rn(value); }
__device__ inline void put(__nv_bfloat16* out, float value) { *out = __float2bfloat16_rn(value); }

}  // namespace millrace
