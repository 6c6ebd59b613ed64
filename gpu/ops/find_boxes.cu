#include <cub/block/block_reduce.cuh>

#include "gpu/launch.cuh"
#include "gpu/ops/find_boxes.hpp"

namespace millrace {
namespace {

__global__ void find_candidates(const HeadJob job) {
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), slot = static_cast<int>(blockIdx.y);
  if (index >= job.candidates) return;
  const std::int32_t fault =
      find_boxes_kernel::find_candidate(job, slot, index, [&] { return atomicAdd(job.found + slot, 1); });
  if (fault != 0) atomicOr(job.faults + slot, fault);
}

constexpr int team = 512;

/// The threads of a block, for keep_best.
struct WholeBlock {
  int rank, size;
  __device__ std::uint64_t max(std::uint64_t value) const {
    using Reduce = cub::BlockReduce<std::uint64_t, team>;
    __shared__ typename Reduce::TempStorage storage;
    __shared__ std::uint64_t result;
    const std::uint64_t largest =
        // Only thread 0 gets the result.
        Reduce(storage).Reduce(value, [](std::uint64_t a, std::uint64_t b) { return a < b ? b : a; });
    if (rank == 0) result = largest;
    __syncthreads();
    value = result;
    __syncthreads();  // all threads have read it before one writes it again
    return value;
  }
};

// One block per slot, because each round ends with a barrier of all threads that search this slot.
// The launch bound limits the registers of a thread, so that a block of this size can start.
__global__ void __launch_bounds__(team) keep_best(const HeadJob job) {
  find_boxes_kernel::keep_best(job, static_cast<int>(blockIdx.x), WholeBlock{static_cast<int>(threadIdx.x), team});
}

}  // namespace

void launch(const HeadJob& job, Stream& stream) {
  if (job.slots == 0) return;
  const cudaStream_t cuda = cuda_stream(stream);
  const auto slots = static_cast<unsigned>(job.slots);
  // CUDA refuses a launch without blocks. keep_best runs also without candidates, because it writes the summaries.
  if (job.candidates > 0) {
    find_candidates<<<dim3(blocks_of(job.candidates, 128), slots), 128, 0, cuda>>>(job);
    check_launch("find_candidates");
  }
  keep_best<<<slots, team, 0, cuda>>>(job);
  check_launch("keep_best");
}

}  // namespace millrace
