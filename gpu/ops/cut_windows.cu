#include "gpu/launch.cuh"
#include "gpu/ops/cut_windows.hpp"

namespace millrace {
namespace {

/// Block z is the window, block y the plane. Threads of a block are neighbours in the input.
template <class Out>
__global__ void cut_windows(const CutWindowsJob job) {
  const std::int64_t values = job.roi.values();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= values) return;
  const PlacedWindow& window = job.windows[blockIdx.z];
  const int plane = static_cast<int>(blockIdx.y);
  float value = 0;
  if (window.source >= 0) {
    const Extent place = window.mirror.of(job.roi, place_at(job.roi, job.order, i));
    value = window_value(job.sources[window.source], window.start, plane, place.rows, place.lines, place.columns);
  }
  put(static_cast<Out*>(job.inputs) + (static_cast<std::int64_t>(blockIdx.z) * job.channels + plane) * values + i,
      value);
}

}  // namespace

void launch(const CutWindowsJob& job, Stream& stream) {
  const dim3 grid(blocks_of(job.roi.values(), 256), static_cast<unsigned>(job.channels),
                  static_cast<unsigned>(job.count));
  const cudaStream_t cuda = cuda_stream(stream);
  if (job.type == DType::f32) {
    cut_windows<float><<<grid, 256, 0, cuda>>>(job);
  } else if (job.type == DType::f16) {
    cut_windows<__half><<<grid, 256, 0, cuda>>>(job);
  } else {
    cut_windows<__nv_bfloat16><<<grid, 256, 0, cuda>>>(job);
  }
  check_launch("cut_windows");
}

}  // namespace millrace
