#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExtCudaRt.h>

#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "gpu/launch.cuh"
#include "gpu/streams/block_pool.hpp"
#include "gpu/streams/cuda_stream.hpp"

namespace millrace {
namespace {

/// Bytes that are an argument of a kernel. Arguments have at most 4 kB.
struct Parcel {
  // The other arguments of store_parcel need room too.
  static constexpr int capacity = 3584;
  unsigned char bytes[capacity];
};

__global__ void store_parcel(const __grid_constant__ Parcel parcel, unsigned char* out, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = parcel.bytes[i];
}

struct DestroyStream {
  void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
};
using StreamHandle = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;
using EventHandle = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

/// Occupies the stream. Its thread sleeps in between, since other streams may use the same multiprocessor.
__global__ void idle_for(std::uint64_t ns) {
  const auto now = [] {
    std::uint64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
  };
  const std::uint64_t begun = now();
  while (now() - begun < ns) __nanosleep(1000);
}

StreamHandle make_stream() {
  cudaStream_t stream{};
  // Otherwise work on this stream would wait for work on the default stream, and the reverse.
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  return StreamHandle(stream);
}

EventHandle make_event(unsigned flags) {
  cudaEvent_t event{};
  check(cudaEventCreateWithFlags(&event, flags), "an event");
  return EventHandle(event);
}

/// The handles of a stream. They live as long as memory that was allocated with them.
struct Handles {
  int device = 0;
  StreamHandle stream;
  EventHandle done;

  Handles(int ordinal, const std::string& name) : device(ordinal) {
    check(cudaSetDevice(ordinal), "selecting GPU " + std::to_string(ordinal));
    cudaMemPool_t pool{};
    check(cudaDeviceGetDefaultMemPool(&pool, ordinal), "the memory pool");
    // Without this, each wait returns memory to the system.
    std::uint64_t keep = std::numeric_limits<std::uint64_t>::max();
    check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "the memory pool");
    stream = make_stream();
    // The lane's thread sleeps until the event. A spinning thread would take a core from the workers.
    done = make_event(cudaEventBlockingSync | cudaEventDisableTiming);
    nvtxNameCudaStreamA(stream.get(), name.c_str());
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  ~Handles() {
    use();
    cudaStreamSynchronize(stream.get());
  }
  /// Selects the GPU of this thread; LibTorch changes it too. Selecting it again costs almost nothing.
  void use() const noexcept { cudaSetDevice(device); }
};

class CudaStream final : public Stream {
 public:
  // Pinning takes longer than copying, so blocks are reused.
  CudaStream(int ordinal, const std::string& name)
      : handles_(std::make_shared<Handles>(ordinal, name)),
        mapped_(std::make_shared<BlockPool>(
            [handles = handles_](std::size_t bytes) {
              void* block = nullptr;
              handles->use();
              // Mapped: kernels write to it, under the same address as on the host.
              // Portable: one stream allocates the pixels of all pictures, and lanes on any GPU upload them.
              check(cudaHostAlloc(&block, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "pinned memory");
              return block;
            },
            [handles = handles_](void* block) {
              handles->use();  // a thread without this call would open GPU 0
              cudaFreeHost(block);
            })) {}

  [[nodiscard]] int device() const override { return handles_->device; }
  [[nodiscard]] void* native() const override { return handles_->stream.get(); }

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    void* memory = nullptr;
    handles_->use();
    // In stream order, so neither allocating nor freeing waits for queued work.
    cudaError_t error = cudaMallocAsync(&memory, bytes, handles_->stream.get());
    if (error == cudaErrorMemoryAllocation) {
      // Clears the error, or the next check_launch() would report it.
      cudaGetLastError();
      give_all_back();
      // give_all_back() calls LibTorch, which selects GPUs too.
      handles_->use();
      error = cudaMallocAsync(&memory, bytes, handles_->stream.get());
    }
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      throw OutOfDeviceMemory();
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
    // The pool returns only blocks whose queued free is known to be done.
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

  void wait() override {
    handles_->use();
    check(cudaEventRecord(handles_->done.get(), handles_->stream.get()), "an event");
    check(cudaEventSynchronize(handles_->done.get()), "a wait for the GPU");
  }

  // An own event, because `done` records no time.
  std::shared_ptr<const void> mark() override {
    handles_->use();
    EventHandle event = make_event(cudaEventDefault);
    check(cudaEventRecord(event.get(), handles_->stream.get()), "an event");
    return std::shared_ptr<std::remove_pointer_t<cudaEvent_t>>(std::move(event));
  }

  [[nodiscard]] double seconds(const void* from, const void* to) const override {
    const auto event = [](const void* mark) { return static_cast<cudaEvent_t>(const_cast<void*>(mark)); };
    float ms = 0;
    check(cudaEventElapsedTime(&ms, event(from), event(to)), "the time between two events");
    return ms / 1e3;
  }

 protected:
  void take(std::shared_ptr<const OperationCall> call) override {
    handles_->use();
    // A launch copies its arguments, so the call may end here.
    call->launch(*this);
  }

  void idle(double seconds) override {
    if (seconds <= 0) return;
    handles_->use();
    idle_for<<<1, 1, 0, handles_->stream.get()>>>(static_cast<std::uint64_t>(seconds * 1e9));
    check_launch("idle_for");
  }

 private:
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
    // Clears the error, or the first check_launch() would report it.
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
