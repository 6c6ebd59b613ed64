#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cub/block/block_reduce.cuh>
#include <cub/device/device_scan.cuh>
#include <cstring>
#include <string>

#include "gpu/cuda_error.hpp"
#include "gpu/kernels.hpp"

namespace millrace {
namespace {

void check_launch(const char* kernel) {
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    throw CudaError(std::string("kernel ") + kernel + " could not be launched: " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
  }
}

unsigned blocks_of(std::int64_t threads, int block) { return static_cast<unsigned>((threads + block - 1) / block); }

template <class T>
struct PerSlot {
  T of[most_slots];
};

template <class T>
PerSlot<T> per_slot(const T* values, int slots) {
  if (slots < 0 || slots > most_slots) throw CudaError("a batch of " + std::to_string(slots) + " slots; kernels take " + std::to_string(most_slots));
  PerSlot<T> all{};
  std::memcpy(static_cast<void*>(all.of), values, sizeof(T) * static_cast<std::size_t>(slots));
  return all;
}

__device__ void store(float* out, float value) { *out = value; }
__device__ void store(__half* out, float value) { *out = __float2half_rn(value); }
__device__ void store(__nv_bfloat16* out, float value) { *out = __float2bfloat16_rn(value); }

template <class Out>
__global__ void letterbox(const LetterboxJob job, Out* out) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (x >= job.input_width || y >= job.input_height) return;
  const std::int64_t plane = static_cast<std::int64_t>(job.input_width) * job.input_height;
  const std::int64_t at = static_cast<std::int64_t>(y) * job.input_width + x;
  for (int p = 0; p < 3; ++p) store(out + p * plane + at, letterbox_value(job, x, y, p));
}

__global__ void find_candidates(HeadJob job, const PerSlot<SlotGeometry> geometry) {
  const int anchor = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), slot = static_cast<int>(blockIdx.y);
  if (anchor >= job.anchors) return;
  job.geometry = geometry.of;
  const std::int32_t fault = detect_kernel::find_candidate(job, slot, anchor);
  if (fault != 0) atomicOr(job.faults + slot, fault);
}

constexpr int team = 512;

/// The threads of a block, as keep_best asks for them.
struct WholeBlock {
  int rank, size;
  __device__ std::uint64_t max(std::uint64_t value) const {
    using Reduce = cub::BlockReduce<std::uint64_t, team>;
    __shared__ typename Reduce::TempStorage storage;
    __shared__ std::uint64_t result;
    const std::uint64_t largest = Reduce(storage).Reduce(value, [](std::uint64_t a, std::uint64_t b) { return a < b ? b : a; });
    if (rank == 0) result = largest;
    __syncthreads();
    value = result;
    __syncthreads();  // before anybody writes it again
    return value;
  }
};

__global__ void __launch_bounds__(team) keep_best(HeadJob job, const PerSlot<SlotGeometry> geometry) {
  job.geometry = geometry.of;
  detect_kernel::keep_best(job, static_cast<int>(blockIdx.x), WholeBlock{static_cast<int>(threadIdx.x), team});
}

__global__ void prompts(const PromptJob job, const PerSlot<SlotGeometry> geometry) {
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at >= job.capacity) return;
  int slot = 0, before = 0;
  for (; slot < job.slots; ++slot) {
    const int count = min(job.kept_count[slot], job.shown);
    if (at < before + count) break;
    before += count;
  }
  Box box{0, 0, 0, 0};
  if (slot < job.slots) {
    box = detect_kernel::to_prompt(job.kept[static_cast<std::int64_t>(slot) * job.most_kept + at - before].box, geometry.of[slot]);
  } else {
    slot = 0;
  }
  job.boxes[4 * at] = box.x0;
  job.boxes[4 * at + 1] = box.y0;
  job.boxes[4 * at + 2] = box.x1;
  job.boxes[4 * at + 3] = box.y1;
  job.image_index[at] = slot;
  job.slot[at] = slot;
}

__global__ void __launch_bounds__(team) largest_magnitude(const float* logits, std::int64_t size, float* largest) {
  // Without the sign, bits of floats order like their values, NaN last.
  std::uint32_t most = 0;
  const auto* bits = reinterpret_cast<const std::uint32_t*>(logits) + static_cast<std::int64_t>(blockIdx.x) * size;
  for (std::int64_t i = threadIdx.x; i < size; i += team) most = max(most, bits[i] & 0x7fffffffU);
  using Reduce = cub::BlockReduce<std::uint32_t, team>;
  __shared__ typename Reduce::TempStorage storage;
  most = Reduce(storage).Reduce(most, [](std::uint32_t a, std::uint32_t b) { return a < b ? b : a; });
  if (threadIdx.x == 0) largest[blockIdx.x] = __uint_as_float(most);
}

__global__ void count_changes(OutlineJob job, const PerSlot<MaskGeometry> geometry, int widest, int masks, std::uint32_t* counts) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), n = static_cast<int>(blockIdx.y);
  if (x >= widest) return;
  job.geometry = geometry.of;
  std::uint32_t count = 0;
  outline_kernel::walk(job, n, x, [&](std::uint32_t) { ++count; });
  counts[static_cast<std::int64_t>(n) * widest + x] = count;
  if (n == masks - 1 && x == widest - 1) counts[static_cast<std::int64_t>(masks) * widest] = 0;
}

__global__ void write_changes(OutlineJob job, const PerSlot<MaskGeometry> geometry, int widest, const std::uint32_t* counts, std::uint32_t* places,
                              std::uint32_t capacity) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), n = static_cast<int>(blockIdx.y);
  if (x >= widest) return;
  job.geometry = geometry.of;
  std::uint32_t at = counts[static_cast<std::int64_t>(n) * widest + x];
  if (at == counts[static_cast<std::int64_t>(n) * widest + x + 1]) return;  // nothing changes in this column
  outline_kernel::walk(job, n, x, [&](std::uint32_t place) {
    if (at < capacity) places[at] = place;
    ++at;
  });
}

}  // namespace

void launch_letterbox(const LetterboxJob& job, DType type, void* out, CudaStream stream) {
  const dim3 block(32, 8), grid(blocks_of(job.input_width, 32), blocks_of(job.input_height, 8));
  if (type == DType::f32) letterbox<<<grid, block, 0, stream>>>(job, static_cast<float*>(out));
  else if (type == DType::f16) letterbox<<<grid, block, 0, stream>>>(job, static_cast<__half*>(out));
  else if (type == DType::bf16) letterbox<<<grid, block, 0, stream>>>(job, static_cast<__nv_bfloat16*>(out));
  else throw CudaError("a letterbox is made in f32, f16 or bf16");
  check_launch("letterbox");
}

void launch_detect(const HeadJob& job, const SlotGeometry* geometry, CudaStream stream) {
  if (job.slots == 0) return;
  const auto slots = per_slot(geometry, job.slots);
  find_candidates<<<dim3(blocks_of(job.anchors, 128), static_cast<unsigned>(job.slots)), 128, 0, stream>>>(job, slots);
  check_launch("find_candidates");
  keep_best<<<static_cast<unsigned>(job.slots), team, 0, stream>>>(job, slots);
  check_launch("keep_best");
}

void launch_prompts(const PromptJob& job, const SlotGeometry* geometry, CudaStream stream) {
  if (job.capacity == 0) return;
  prompts<<<blocks_of(job.capacity, 128), 128, 0, stream>>>(job, per_slot(geometry, job.slots));
  check_launch("prompts");
}

std::size_t outline_scratch_bytes(int counts) {
  std::size_t bytes = 0;
  cub::DeviceScan::ExclusiveSum(nullptr, bytes, static_cast<std::uint32_t*>(nullptr), static_cast<std::uint32_t*>(nullptr), counts);
  return bytes;
}

void launch_outline(const OutlineJob& job, int masks, const MaskGeometry* geometry, int slots, int widest, const OutlineBuffers& buffers,
                    CudaStream stream) {
  if (masks == 0) return;
  const auto all = per_slot(geometry, slots);
  const MaskGeometry& any = geometry[0];
  OutlineJob own = job;
  own.largest = buffers.largest;
  largest_magnitude<<<static_cast<unsigned>(masks), team, 0, stream>>>(job.logits, static_cast<std::int64_t>(any.logits_width) * any.logits_height,
                                                                       buffers.largest);
  check_launch("largest_magnitude");
  const dim3 grid(blocks_of(widest, 64), static_cast<unsigned>(masks));
  count_changes<<<grid, 64, 0, stream>>>(own, all, widest, masks, buffers.counts);
  check_launch("count_changes");
  std::size_t bytes = buffers.scratch_bytes;
  const int total = masks * widest + 1;
  if (const cudaError_t error = cub::DeviceScan::ExclusiveSum(buffers.scratch, bytes, buffers.counts, buffers.counts, total, stream); error != cudaSuccess)
    throw CudaError(std::string("the sums of the masks' changes: ") + cudaGetErrorString(error));
  write_changes<<<grid, 64, 0, stream>>>(own, all, widest, buffers.counts, buffers.places, buffers.capacity);
  check_launch("write_changes");
}

}  // namespace millrace
