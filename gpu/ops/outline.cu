#include <cub/device/device_scan.cuh>

#include "gpu/launch.cuh"
#include "gpu/ops/outline.hpp"

namespace millrace {
namespace {

constexpr int team = 256;  // logit columns of a block

/// A block handles 32 logit rows. Block y is the mask, then the geometry.
/// The threads of a warp read neighbours in a row, and each thread has 32 reads that do not depend on each other.
__global__ void __launch_bounds__(team) classify_logits(const OutlineJob job) {
  const int word = static_cast<int>(blockIdx.x), n = static_cast<int>(blockIdx.y), rank = static_cast<int>(threadIdx.x);
  if (n >= job.masks) {
    const int y = 32 * word + rank;
    if (rank < 32 && y < job.logits_height) outline_kernel::find_range(job, n - job.masks, y);
    return;
  }
  bool finite = true;
  for (int x = rank; x < job.logits_width; x += team) finite = outline_kernel::classify(job, n, word, x) && finite;
  const bool not_finite = __syncthreads_or(static_cast<int>(!finite)) != 0;
  if (rank == 0) job.not_finite[n * job.words() + word] = static_cast<std::uint32_t>(not_finite);
}

constexpr int columns = 64;  // picture columns of a block

/// A thread handles a stretch of a picture column. Block y is the mask, block z the stretch.
__global__ void count_changes(const OutlineJob job) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (x < job.widest) outline_kernel::count(job, static_cast<int>(blockIdx.y), x, static_cast<int>(blockIdx.z));
}

__global__ void write_changes(const OutlineJob job) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (x < job.widest) outline_kernel::write(job, static_cast<int>(blockIdx.y), x, static_cast<int>(blockIdx.z));
}

dim3 grid_of(const OutlineJob& job) {
  return {blocks_of(job.widest, columns), static_cast<unsigned>(job.masks), OutlineJob::stretches};
}

void count(const OutlineJob& job, Stream& stream) {
  const cudaStream_t cuda = cuda_stream(stream);
  const dim3 grid(static_cast<unsigned>(job.words()), static_cast<unsigned>(job.masks + job.geometries));
  classify_logits<<<grid, team, 0, cuda>>>(job);
  check_launch("classify_logits");
  count_changes<<<grid_of(job), columns, 0, cuda>>>(job);
  check_launch("count_changes");
  const int total = static_cast<int>(job.all_stretches()) + 1;
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
