#include "gpu/launch.cuh"
#include "gpu/ops/letterbox.hpp"

namespace millrace {
namespace {

using letterbox_kernel::thread_rows, letterbox_kernel::tile;

constexpr int team = tile * thread_rows;

/// A thread of the block that runs this code.
struct ThisBlock {
  letterbox_kernel::Thread thread{static_cast<int>(threadIdx.x), static_cast<int>(threadIdx.y), {}};
  template <class Phase>
  __device__ void all(const Phase& phase) {
    phase(thread);
    __syncthreads();
  }
};

/// A block fills a tile. Block z is the picture.
template <class Out>
__global__ void __launch_bounds__(team) letterbox(const LetterboxJob job) {
  __shared__ letterbox_kernel::TileMemory memory;
  const LetterboxRow& picture = job.rows[blockIdx.z];
  const std::int64_t plane_size = static_cast<std::int64_t>(job.width) * job.height;
  const auto write = [&](int plane, int x, int y, float value) {
    put(static_cast<Out*>(picture.out) + plane * plane_size + static_cast<std::int64_t>(y) * job.width + x, value);
  };
  ThisBlock block;
  letterbox_kernel::fill_tile(picture, static_cast<int>(blockIdx.x) * tile, static_cast<int>(blockIdx.y) * tile, memory,
                              block, write);
}

}  // namespace

void launch(const LetterboxJob& job, Stream& stream) {
  const cudaStream_t cuda = cuda_stream(stream);
  // The 32 threads of a warp write neighbours of one row.
  const dim3 block(tile, thread_rows);
  const dim3 grid(blocks_of(job.width, tile), blocks_of(job.height, tile), static_cast<unsigned>(job.count));
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
