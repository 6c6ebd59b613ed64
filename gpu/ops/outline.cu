#include <cub/block/block_reduce.cuh>
#include <cub/device/device_scan.cuh>

#include "gpu/launch.cuh"
#include "gpu/ops/outline.hpp"

namespace millrace {
namespace {

constexpr int team = 512;

__global__ void __launch_bounds__(team) largest_magnitude(const OutlineJob job) {
  // Without the sign, the bits of floats have the order of their values, with NaN last.
  std::uint32_t largest = 0;
  const std::int64_t size = static_cast<std::int64_t>(job.logits_width) * job.logits_height;
  const auto* bits = reinterpret_cast<const std::uint32_t*>(job.logits) + static_cast<std::int64_t>(blockIdx.x) * size;
  for (std::int64_t i = threadIdx.x; i < size; i += team) largest = max(largest, bits[i] & 0x7fffffffU);
  using Reduce = cub::BlockReduce<std::uint32_t, team>;
  __shared__ typename Reduce::TempStorage storage;
  largest = Reduce(storage).Reduce(largest, [](std::uint32_t a, std::uint32_t b) { return a < b ? b : a; });
  if (threadIdx.x == 0) job.largest[blockIdx.x] = __uint_as_float(largest);
}

constexpr int columns = 64;  // picture columns of a block

/// A thread handles one picture column. Block y is the mask.
__global__ void count_changes(const OutlineJob job) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (x < job.widest) outline_kernel::count_column(job, static_cast<int>(blockIdx.y), x);
}

__global__ void write_changes(const OutlineJob job) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (x < job.widest) outline_kernel::write_column(job, static_cast<int>(blockIdx.y), x);
}

dim3 grid_of(const OutlineJob& job) { return {blocks_of(job.widest, columns), static_cast<unsigned>(job.masks)}; }

void count(const OutlineJob& job, Stream& stream) {
  const cudaStream_t cuda = cuda_stream(stream);
  largest_magnitude<<<static_cast<unsigned>(job.masks), team, 0, cuda>>>(job);
  check_launch("largest_magnitude");
  count_changes<<<grid_of(job), columns, 0, cuda>>>(job);
  check_launch("count_changes");
  const int total = job.masks * job.widest + 1;
  std::size_t bytes = 0;
  // The first call only returns the size of the scratch memory.
  check(cub::DeviceScan::ExclusiveSum(nullptr, bytes, job.counts, job.counts, total, cuda),
        "the sums of the masks' changes");
  // Freed at the return, but in stream order: after the sums.
  const auto scratch = stream.allocate(bytes);
  check(cub::DeviceScan::ExclusiveSum(scratch.get(), bytes, job.counts, job.counts, total, cuda),
        "the sums of the masks' changes");
}

}  // namespace

void launch(const OutlineJob& job, Stream& stream) {
  // CUDA refuses a launch without blocks.
  if (job.masks == 0) return;
  if (!job.counted) count(job, stream);
  write_changes<<<grid_of(job), columns, 0, cuda_stream(stream)>>>(job);
  check_launch("write_changes");
}

}  // namespace millrace
