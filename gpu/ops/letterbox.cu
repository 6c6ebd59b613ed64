#include "gpu/launch.cuh"
#include "gpu/ops/letterbox.hpp"

namespace millrace {
namespace {

/// Computes each weight once, not for each pixel. Block y is the axis (0: columns, 1: rows), block z the picture.
/// The host does not send the weights, since a table would add some kilobytes for each picture size.
__global__ void fill_taps(const LetterboxJob job) {
  const LetterboxRow& picture = job.rows[blockIdx.z];
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const bool rows = blockIdx.y == 1;
  if (i < (rows ? picture.y : picture.x).size) letterbox_kernel::fill_taps(picture, rows, i);
}

template <class Out>
__global__ void letterbox(const LetterboxJob job) {
  const LetterboxRow& picture = job.rows[blockIdx.z];
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (x >= job.width || y >= job.height) return;
  const std::int64_t plane = static_cast<std::int64_t>(job.width) * job.height;
  Out* const out = static_cast<Out*>(picture.out) + static_cast<std::int64_t>(y) * job.width + x;
  for (int p = 0; p < 3; ++p) put(out + p * plane, letterbox_value(picture, x, y, p));
}

}  // namespace

void launch(const LetterboxJob& job, Stream& stream) {
  const cudaStream_t cuda = cuda_stream(stream);
  const auto count = static_cast<unsigned>(job.count);
  // As many threads as the longest axis of all pictures needs. Those beyond their own axis return at once.
  fill_taps<<<dim3(blocks_of(job.longest_axis, 128), 2, count), 128, 0, cuda>>>(job);
  check_launch("fill_taps");
  // The 32 threads of a warp write neighbours of one row. The stream starts it after all taps are filled.
  const dim3 block(32, 8), grid(blocks_of(job.width, 32), blocks_of(job.height, 8), count);
  if (job.type == DType::f32) {
    letterbox<float><<<grid, block, 0, cuda>>>(job);
  } else if (job.type == DType::f16) {
    letterbox<__half><<<grid, block, 0, cuda>>>(job);
  } else {
    letterbox<__nv_bfloat16><<<grid, block, 0, cuda>>>(job);
  }
  check_launch("letterbox");
}

}  // namespace millrace
