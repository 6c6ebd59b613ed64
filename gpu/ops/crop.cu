#include "gpu/launch.cuh"
#include "gpu/ops/crop.hpp"

namespace millrace {
namespace {

/// Block y is the axis (0: columns, 1: rows), block z the crop.
__global__ void fill_taps_of_rows(const CropJob job) {
  const LetterboxJob& row = job.rows[blockIdx.z];
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const bool rows = blockIdx.y == 1;
  if (i < (rows ? row.y : row.x).size) letterbox_kernel::fill_taps(row, rows, i);
}

template <class Out>
__global__ void crop(const CropJob job) {
  const LetterboxJob& row = job.rows[blockIdx.z];
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (x >= job.width || y >= job.height) return;
  const std::int64_t plane = static_cast<std::int64_t>(job.width) * job.height;
  Out* const out = static_cast<Out*>(row.out) + static_cast<std::int64_t>(y) * job.width + x;
  for (int p = 0; p < 3; ++p) put(out + p * plane, letterbox_value(row, x, y, p));
}

}  // namespace

void launch(const CropJob& job, Stream& stream) {
  const cudaStream_t cuda = cuda_stream(stream);
  const auto count = static_cast<unsigned>(job.count);
  // As many threads as the longest axis of all crops needs. Those beyond their own axis return at once.
  fill_taps_of_rows<<<dim3(blocks_of(job.longest_axis, 128), 2, count), 128, 0, cuda>>>(job);
  check_launch("fill_taps_of_rows");
  // The 32 threads of a warp write neighbours of one row. The stream starts it after all taps are filled.
  const dim3 block(32, 8), grid(blocks_of(job.width, 32), blocks_of(job.height, 8), count);
  if (job.type == DType::f32) {
    crop<float><<<grid, block, 0, cuda>>>(job);
  } else if (job.type == DType::f16) {
    crop<__half><<<grid, block, 0, cuda>>>(job);
  } else {
    crop<__nv_bfloat16><<<grid, block, 0, cuda>>>(job);
  }
  check_launch("crop");
}

}  // namespace millrace
