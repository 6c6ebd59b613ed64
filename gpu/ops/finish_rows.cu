#include "gpu/launch.cuh"
#include "gpu/ops/finish_rows.hpp"

namespace millrace {
namespace {

/// Block y is the target.
__global__ void finish_rows(const FinishJob job) {
  const FinishTarget& target = job.targets[blockIdx.y];
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < target.count * target.sums.plane() && finish_place(job, target, i)) atomicAdd(target.faults, 1);
}

}  // namespace

void launch(const FinishJob& job, Stream& stream) {
  const dim3 grid(blocks_of(job.most_places, 256), static_cast<unsigned>(job.count));
  finish_rows<<<grid, 256, 0, cuda_stream(stream)>>>(job);
  check_launch("finish_rows");
}

}  // namespace millrace
