#include "gpu/launch.cuh"
#include "gpu/ops/blend_windows.hpp"

namespace millrace {
namespace {

/// Block y is the target. A thread owns one sum, so sums have a fixed order and need no atomic operation.
__global__ void blend_windows(const BlendJob job) {
  const BlendTarget& target = job.targets[blockIdx.y];
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < target.sums.values()) blend_value(job, target, i);
}

}  // namespace

void launch(const BlendJob& job, Stream& stream) {
  const dim3 grid(blocks_of(job.most_values, 256), static_cast<unsigned>(job.count));
  blend_windows<<<grid, 256, 0, cuda_stream(stream)>>>(job);
  check_launch("blend_windows");
}

}  // namespace millrace
