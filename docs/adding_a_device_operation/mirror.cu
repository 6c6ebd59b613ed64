#include "gpu/launch.cuh"
#include "gpu/ops/mirror.hpp"

namespace millrace {
namespace {

__global__ void mirror(const MirrorJob job) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < job.rows * job.width) mirror_value(job, i / job.width, static_cast<int>(i % job.width));
}

}  // namespace

void launch(const MirrorJob& job, Stream& stream) {
  const std::int64_t values = job.rows * job.width;
  if (values == 0) return;
  mirror<<<blocks_of(values, 256), 256, 0, cuda_stream(stream)>>>(job);
  check_launch("mirror");
}

}  // namespace millrace
