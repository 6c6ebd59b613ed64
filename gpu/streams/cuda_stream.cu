#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExtCudaRt.h>

#include <cub/block/block_reduce.cuh>
#include <cub/device/device_scan.cuh>

#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "gpu/device.hpp"
#include "gpu/streams/block_pool.hpp"
#include "gpu/streams/cuda_stream.hpp"

namespace millrace {
namespace {

void check(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // so that it is not taken for that of the next launch
  if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw DeviceError(what + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
}

void check_launch(const char* kernel) { check(cudaGetLastError(), std::string("the launch of ") + kernel); }

unsigned blocks_of(std::int64_t threads, int block) { return static_cast<unsigned>((threads + block - 1) / block); }

/// What travels as an argument of a kernel, which holds 4 kB.
struct Parcel {
  static constexpr int capacity = 3584;
  unsigned char bytes[capacity];
};

__global__ void store_parcel(const __grid_constant__ Parcel parcel, unsigned char* out, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = parcel.bytes[i];
}

__device__ void put(float* out, float value) { *out = value; }
__device__ void put(__half* out, float value) { *out = __float2half_rn(value); }
__device__ void put(__nv_bfloat16* out, float value) { *out = __float2bfloat16_rn(value); }

template <class Out>
__global__ void letterbox(const LetterboxJob job, Out* out) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (x >= job.input_width || y >= job.input_height) return;
  const std::int64_t plane = static_cast<std::int64_t>(job.input_width) * job.input_height;
  const std::int64_t at = static_cast<std::int64_t>(y) * job.input_width + x;
  for (int p = 0; p < 3; ++p) put(out + p * plane + at, letterbox_value(job, x, y, p));
}

__global__ void find_candidates(const HeadJob job) {
  const int anchor = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), slot = static_cast<int>(blockIdx.y);
  if (anchor >= job.anchors) return;
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
    const std::uint64_t largest =
        Reduce(storage).Reduce(value, [](std::uint64_t a, std::uint64_t b) { return a < b ? b : a; });
    if (rank == 0) result = largest;
    __syncthreads();
    value = result;
    __syncthreads();  // before anybody writes it again
    return value;
  }
};

__global__ void __launch_bounds__(team) keep_best(const HeadJob job) {
  detect_kernel::keep_best(job, static_cast<int>(blockIdx.x), WholeBlock{static_cast<int>(threadIdx.x), team});
}

__global__ void __launch_bounds__(team) largest_magnitude(const OutlineJob job) {
  // Without the sign, bits of floats order like their values, NaN last.
  std::uint32_t most = 0;
  const std::int64_t size = static_cast<std::int64_t>(job.logits_width) * job.logits_height;
  const auto* bits = reinterpret_cast<const std::uint32_t*>(job.logits) + static_cast<std::int64_t>(blockIdx.x) * size;
  for (std::int64_t i = threadIdx.x; i < size; i += team) most = max(most, bits[i] & 0x7fffffffU);
  using Reduce = cub::BlockReduce<std::uint32_t, team>;
  __shared__ typename Reduce::TempStorage storage;
  most = Reduce(storage).Reduce(most, [](std::uint32_t a, std::uint32_t b) { return a < b ? b : a; });
  if (threadIdx.x == 0) job.largest[blockIdx.x] = __uint_as_float(most);
}

constexpr int columns = 64;  // of a block

__global__ void count_changes(const OutlineJob job) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (x < job.widest) outline_kernel::count_column(job, static_cast<int>(blockIdx.y), x);
}

__global__ void write_changes(const OutlineJob job) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (x < job.widest) outline_kernel::write_column(job, static_cast<int>(blockIdx.y), x);
}

struct DestroyStream {
  void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
};
using StreamHandle = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;
using EventHandle = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

StreamHandle make_stream() {
  cudaStream_t stream{};
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  return StreamHandle(stream);
}

EventHandle make_event(unsigned flags) {
  cudaEvent_t event{};
  check(cudaEventCreateWithFlags(&event, flags), "an event");
  return EventHandle(event);
}

/// The handles, which live as long as memory that belongs to them.
struct Handles {
  int device = 0;
  StreamHandle stream;
  EventHandle done;

  Handles(int ordinal, const std::string& name) : device(ordinal) {
    check(cudaSetDevice(ordinal), "the choice of GPU " + std::to_string(ordinal));
    cudaMemPool_t pool{};
    check(cudaDeviceGetDefaultMemPool(&pool, ordinal), "the memory pool");
    std::uint64_t keep = std::numeric_limits<std::uint64_t>::max();  // else each wait gives memory back to the system
    check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "the memory pool");
    stream = make_stream();
    done = make_event(cudaEventBlockingSync | cudaEventDisableTiming);
    nvtxNameCudaStreamA(stream.get(), name.c_str());
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  ~Handles() {
    use();
    cudaStreamSynchronize(stream.get());
  }
  /// A thread's GPU is its own, and LibTorch changes it too. Choosing the one that is chosen costs next to nothing.
  void use() const noexcept { cudaSetDevice(device); }
};

class CudaStream final : public Stream {
 public:
  // Pinning takes longer than copying, so blocks are kept.
  CudaStream(int ordinal, const std::string& name)
      : handles_(std::make_shared<Handles>(ordinal, name)),
        mapped_(std::make_shared<BlockPool>(
            [handles = handles_](std::size_t bytes) {
              void* block = nullptr;
              handles->use();
              check(cudaHostAlloc(&block, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "pinned memory");
              return block;
            },
            [handles = handles_](void* block) {
              handles->use();  // on any thread, which else would open GPU 0 for it
              cudaFreeHost(block);
            })) {}

  [[nodiscard]] int device() const override { return handles_->device; }
  [[nodiscard]] void* native() const override { return handles_->stream.get(); }

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    void* memory = nullptr;
    handles_->use();
    cudaError_t error = cudaMallocAsync(&memory, bytes, handles_->stream.get());
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      give_all_back();
      handles_->use();
      error = cudaMallocAsync(&memory, bytes, handles_->stream.get());
    }
    check(error, "device memory");
    return {memory, [handles = handles_](void* mine) {
              handles->use();
              cudaFreeAsync(mine, handles->stream.get());
            }};
  }

  std::shared_ptr<void> allocate_mapped(std::size_t bytes) override { return mapped_->take(bytes); }

  void trim() override {
    cudaMemPool_t pool{};
    wait();
    check(cudaDeviceGetDefaultMemPool(&pool, handles_->device), "the memory pool");
    check(cudaMemPoolTrimTo(pool, 0), "the memory pool");
  }

  [[nodiscard]] std::optional<DeviceMemory> memory() const override {
    std::size_t free = 0, total = 0;
    handles_->use();
    check(cudaMemGetInfo(&free, &total), "the memory of GPU " + std::to_string(handles_->device));
    return DeviceMemory{static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
  }

  void upload(const void* host, void* device, std::size_t bytes) override {
    transfer(host, device, bytes, cudaMemcpyHostToDevice);
  }
  void download(const void* device, void* host, std::size_t bytes) override {
    transfer(device, host, bytes, cudaMemcpyDeviceToHost);
  }
  void copy(const void* from, void* to, std::size_t bytes) override {
    transfer(from, to, bytes, cudaMemcpyDeviceToDevice);
  }
  void zero(void* device, std::size_t bytes) override {
    handles_->use();
    check(cudaMemsetAsync(device, 0, bytes, handles_->stream.get()), "zeros");
  }

  void store(const void* host, void* device, std::size_t bytes) override {
    handles_->use();
    const auto* from = static_cast<const unsigned char*>(host);
    auto* to = static_cast<unsigned char*>(device);
    while (bytes > 0) {
      Parcel parcel;
      const auto count = static_cast<int>(bytes < Parcel::capacity ? bytes : Parcel::capacity);
      std::memcpy(parcel.bytes, from, static_cast<std::size_t>(count));
      store_parcel<<<blocks_of(count, 128), 128, 0, handles_->stream.get()>>>(parcel, to, count);
      check_launch("store_parcel");
      from += count;
      to += count;
      bytes -= static_cast<std::size_t>(count);
    }
  }

  void letterbox(const LetterboxJob& job, DType type, void* out) override {
    handles_->use();
    const dim3 block(32, 8), grid(blocks_of(job.input_width, 32), blocks_of(job.input_height, 8));
    switch (type) {
      case DType::f32:
        millrace::letterbox<<<grid, block, 0, handles_->stream.get()>>>(job, static_cast<float*>(out));
        break;
      case DType::f16:
        millrace::letterbox<<<grid, block, 0, handles_->stream.get()>>>(job, static_cast<__half*>(out));
        break;
      case DType::bf16:
        millrace::letterbox<<<grid, block, 0, handles_->stream.get()>>>(job, static_cast<__nv_bfloat16*>(out));
        break;
      default:
        throw std::invalid_argument("a letterbox is made in f32, f16 or bf16");
    }
    check_launch("letterbox");
  }

  void find_boxes(const HeadJob& job) override {
    if (job.slots == 0) return;
    handles_->use();
    const auto slots = static_cast<unsigned>(job.slots);
    if (job.anchors > 0) {
      find_candidates<<<dim3(blocks_of(job.anchors, 128), slots), 128, 0, handles_->stream.get()>>>(job);
      check_launch("find_candidates");
    }
    keep_best<<<slots, team, 0, handles_->stream.get()>>>(job);
    check_launch("keep_best");
  }

  void outline(const OutlineJob& job) override {
    if (job.masks == 0) return;
    handles_->use();
    largest_magnitude<<<static_cast<unsigned>(job.masks), team, 0, handles_->stream.get()>>>(job);
    check_launch("largest_magnitude");
    count_changes<<<grid_of(job), columns, 0, handles_->stream.get()>>>(job);
    check_launch("count_changes");
    const int total = job.masks * job.widest + 1;
    std::size_t bytes = 0;
    check(cub::DeviceScan::ExclusiveSum(nullptr, bytes, job.counts, job.counts, total, handles_->stream.get()),
          "the sums of the masks' changes");
    const auto scratch = allocate(bytes);
    check(cub::DeviceScan::ExclusiveSum(scratch.get(), bytes, job.counts, job.counts, total, handles_->stream.get()),
          "the sums of the masks' changes");
    write_places(job);
  }

  void write_places(const OutlineJob& job) override {
    handles_->use();
    write_changes<<<grid_of(job), columns, 0, handles_->stream.get()>>>(job);
    check_launch("write_changes");
  }

  void wait() override {
    handles_->use();
    check(cudaEventRecord(handles_->done.get(), handles_->stream.get()), "an event");
    check(cudaEventSynchronize(handles_->done.get()), "what ran on the GPU");
  }

  double time(const std::function<void()>& work) override {
    wait();
    const EventHandle begin = make_event(cudaEventDefault), end = make_event(cudaEventDefault);
    check(cudaEventRecord(begin.get(), handles_->stream.get()), "an event");
    work();
    handles_->use();
    check(cudaEventRecord(end.get(), handles_->stream.get()), "an event");
    wait();
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin.get(), end.get()), "the time between two events");
    return ms / 1e3;
  }

 private:
  static dim3 grid_of(const OutlineJob& job) {
    return {blocks_of(job.widest, columns), static_cast<unsigned>(job.masks)};
  }
  void transfer(const void* from, void* to, std::size_t bytes, cudaMemcpyKind kind) {
    handles_->use();
    check(cudaMemcpyAsync(to, from, bytes, kind, handles_->stream.get()), "a copy");
  }

  const std::shared_ptr<Handles> handles_;
  const std::shared_ptr<BlockPool> mapped_;
};

}  // namespace

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}

std::string why_no_cuda_device() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) cudaGetLastError();
  return count > 0 && error == cudaSuccess ? "" : cudaGetErrorString(error == cudaSuccess ? cudaErrorNoDevice : error);
}

CudaDevice cuda_device(int ordinal) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, ordinal), "the properties of GPU " + std::to_string(ordinal));
  char bus[32]{};
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal), "the bus of GPU " + std::to_string(ordinal));
  return {properties.name,
          bus,
          properties.major,
          properties.minor,
          static_cast<std::int64_t>(properties.totalGlobalMem),
          properties.multiProcessorCount};
}

void start_cuda_profiler() noexcept { cudaProfilerStart(); }
void stop_cuda_profiler() noexcept { cudaProfilerStop(); }

std::unique_ptr<Stream> make_cuda_stream(int ordinal, const std::string& name) {
  return std::make_unique<CudaStream>(ordinal, name);
}

}  // namespace millrace
