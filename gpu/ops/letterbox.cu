#include "gpu/launch.cuh"
#include "gpu/ops/letterbox.hpp"

namespace millrace {
namespace {

/// Computes each weight once, not for each pixel. Block y is the axis (0: columns, 1: rows).
/// The host does not send the weights, since a table would add some kilobytes for each picture size.
__global__ void fill_taps(const LetterboxJob job) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const bool rows = blockIdx.y == 1;
  if (i < (rows ? job.y : job.x).size) letterbox_kernel::fill_taps(job, rows, i);
}

template <class Out>
__global__ void letterbox(const LetterboxJob job, Out* out) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (x >= job.spec.width || y >= job.spec.height) return;
  const std::int64_t plane = static_cast<std::int64_t>(job.spec.width) * job.spec.height;
  const std::int64_t at = static_cast<std::int64_t>(y) * job.spec.width + x;
  for (int p = 0; p < 3; ++p) put(out + p * plane + at, letterbox_value(job, x, y, p));
}

}  // namespace

void launch(const LetterboxJob& job, Stream& stream) {
  const cudaStream_t cuda = cuda_stream(stream);
  fill_taps<<<dim3(blocks_of(job.x.size > job.y.size ? job.x.size : job.y.size, 128), 2), 128, 0, cuda>>>(job);
  check_launch("fill_taps");
  // The 32 threads of a warp write neighbours of one row. The stream starts it after all taps are filled.
  const dim3 block(32, 8), grid(blocks_of(job.spec.width, 32), blocks_of(job.spec.height, 8));
  if (job.type == DType::f32) {
    letterbox<<<grid, block, 0, cuda>>>(job, static_cast<float*>(job.out));
  } else if (job.type == DType::f16) {
    letterbox<<<grid, block, 0, cuda>>>(job, static_cast<__half*>(job.out));
  } else {
    letterbox<<<grid, block, 0, cuda>>>(job, static_cast<__nv_bfloat16*>(job.out));
  }
  check_launch("letterbox");
}

}  // namespace millrace
