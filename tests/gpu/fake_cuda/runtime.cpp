// A CUDA runtime for machines without a GPU, in the place of libcudart. It counts what a program asks of the GPU.
// Device memory is memory of the host and can run out. All work is done at once, in the thread that asks for it.
// Kernels of Millrace run on the host (kernels.cpp). Those of LibTorch do nothing, so their results mean nothing.
//
// Variables of the environment:
//   FAKE_CUDA_REPORT=FILE   write the counts there at the end, a line each: number, tab, name.
//   FAKE_CUDA_BYTES=N       memory of the GPU (default 140 GiB).
//   FAKE_CUDA_BALLAST=N     bytes of it that another process has (default 0).
//   FAKE_CUDA_COPIES=no     copies from device to device copy nothing. Then a program's time is closer to that of its host
//                           with a GPU, which copies by itself.
//   FAKE_CUDA_LAUNCHES=FILE append launches there for a profiler (profiler.cpp).
#include <cuda_runtime_api.h>
#include <cxxabi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tests/gpu/fake_cuda/memory.hpp"
#include "tests/gpu/fake_cuda/runtime.hpp"

namespace {

using fake_cuda::failed;
using fake_cuda::forbidden;
using fake_cuda::Memory;
using Lock = std::lock_guard<std::recursive_mutex>;

std::string demangled(const char* name) {
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, nullptr),
                                                         &std::free);
  return text ? text.get() : name;
}

/// A program has some 100,000 kernels and uses few of them, so only those get a readable name.
struct Kernel {
  const char* mangled = nullptr;
  std::string name;
  std::int64_t launches = 0;
};

struct State {
  std::map<std::string, std::int64_t> counts;
  std::unordered_map<const void*, Kernel> kernels;
  Memory memory;
};

/// Never destroyed: other libraries call this one at their end.
State& state() {
  static auto* const it = new State;
  return *it;
}

}  // namespace

std::int64_t fake_cuda::count_of(const std::string& name) {
  const Lock lock(fake_cuda::mutex());
  return state().counts[name];
}

// The names are those of NVIDIA.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {

void fake_cuda_count(const char* name) {
  const Lock lock(fake_cuda::mutex());
  ++state().counts[name];
}

__attribute__((destructor)) static void write_report() {
  const char* file = std::getenv("FAKE_CUDA_REPORT");
  if (file == nullptr) return;
  const Lock lock(fake_cuda::mutex());
  state().counts["peak MB of the device"] = static_cast<std::int64_t>(state().memory.peak() >> 20);
  for (const auto& [function, kernel] : state().kernels) {
    if (kernel.launches > 0) state().counts["kernel " + kernel.name] += kernel.launches;
  }
  const std::unique_ptr<std::FILE, decltype(&std::fclose)> out(std::fopen(file, "w"), &std::fclose);
  if (!out) return;
  for (const auto& [name, count] : state().counts)
    std::fprintf(out.get(), "%lld\t%s\n", static_cast<long long>(count), name.c_str());
}

static cudaError_t counted(const char* name) {
  fake_cuda_count(name);
  return cudaSuccess;
}

// ---- Kernels

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, void*, void*, void*, void*,
                            int*) {
  const Lock lock(fake_cuda::mutex());
  state().kernels[function].mangled = name;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

namespace {
struct Launch {
  dim3 grid, block;
  std::size_t shared = 0;
  cudaStream_t stream = nullptr;
};
thread_local Launch pushed;

bool valid(dim3 grid, dim3 block) {
  const auto threads = std::uint64_t{block.x} * block.y * block.z;
  return grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 2147483647 && grid.y <= 65535 && grid.z <= 65535 &&
         threads > 0 && threads <= 1024 && block.z <= 64;
}

cudaError_t launch(const void* function, const Launch& launch, void** arguments) {
  std::string_view name;  // stays, because kernels are never removed
  {
    const Lock lock(fake_cuda::mutex());
    const auto found = state().kernels.find(function);
    if (found == state().kernels.end()) return failed(cudaErrorInvalidDeviceFunction);
    Kernel& kernel = found->second;
    if (kernel.launches++ == 0) kernel.name = demangled(kernel.mangled);
    name = kernel.name;
  }
  if (!valid(launch.grid, launch.block)) return failed(cudaErrorInvalidConfiguration);
  if (const auto answer = fake_cuda::put(launch.stream, "launch", "launch", name)) return *answer;
  if (const auto ns = fake_cuda::run_kernel(name, {launch.grid, launch.block}, arguments); ns > 0)
    fake_cuda::occupy(launch.stream, ns);
  return cudaSuccess;
}
}  // namespace

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) {
  pushed = {grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  *grid = pushed.grid;
  *block = pushed.block;
  *shared = pushed.shared;
  *static_cast<cudaStream_t*>(stream) = pushed.stream;
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                               cudaStream_t stream) {
  return launch(kernel, {grid, block, shared, stream}, arguments);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* to, const void* function, void** arguments) {
  return launch(function, {to->gridDim, to->blockDim, to->dynamicSmemBytes, to->stream}, arguments);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void*) {
  *out = {};
  out->maxThreadsPerBlock = 1024;
  out->binaryVersion = out->ptxVersion = 90;
  out->maxDynamicSharedSizeBytes = 49152;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, std::size_t) {
  *blocks = 4;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, std::size_t,
                                                                   unsigned) {
  *blocks = 4;
  return cudaSuccess;
}

// ---- Memory

static cudaError_t allocated(void** out, void* block) {
  *out = block;
  if (block != nullptr) return cudaSuccess;
  fake_cuda_count("out of memory");
  return failed(cudaErrorMemoryAllocation);
}
cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  if (forbidden("cudaMalloc")) return cudaErrorStreamCaptureUnsupported;
  const Lock lock(fake_cuda::mutex());
  fake_cuda_count("cudaMalloc");
  return allocated(out, state().memory.take(bytes));
}
cudaError_t cudaMallocAsync(void** out, std::size_t bytes, cudaStream_t) {
  const Lock lock(fake_cuda::mutex());
  fake_cuda_count("cudaMallocAsync");
  return allocated(out, state().memory.take_from_pool(bytes));
}
cudaError_t cudaFree(void* block) {
  if (forbidden("cudaFree")) return cudaErrorStreamCaptureUnsupported;
  const Lock lock(fake_cuda::mutex());
  if (block == nullptr) return cudaSuccess;
  fake_cuda_count("cudaFree");
  return state().memory.give(block) ? cudaSuccess : failed(cudaErrorInvalidValue);
}
cudaError_t cudaFreeAsync(void* block, cudaStream_t) {
  const Lock lock(fake_cuda::mutex());
  fake_cuda_count("cudaFreeAsync");
  return state().memory.give_to_pool(block) ? cudaSuccess : failed(cudaErrorInvalidValue);
}
cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned) {
  if (forbidden("cudaHostAlloc")) return cudaErrorStreamCaptureUnsupported;
  fake_cuda_count("cudaHostAlloc");
  // Other threads pin the pixels of pictures. How many of them is a question of time.
  if (fake_cuda::is_lane()) fake_cuda_count("cudaHostAlloc by a lane");
  return allocated(out, std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
}
cudaError_t cudaFreeHost(void* block) {
  if (forbidden("cudaFreeHost")) return cudaErrorStreamCaptureUnsupported;
  std::free(block);
  return counted("cudaFreeHost");
}
cudaError_t cudaHostRegister(void*, std::size_t, unsigned) {
  return forbidden("cudaHostRegister") ? cudaErrorStreamCaptureUnsupported : counted("cudaHostRegister");
}
cudaError_t cudaHostUnregister(void*) {
  return forbidden("cudaHostUnregister") ? cudaErrorStreamCaptureUnsupported : counted("cudaHostUnregister");
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const Lock lock(fake_cuda::mutex());
  *free = state().memory.free();
  *total = Memory::total();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  static int only;
  *pool = reinterpret_cast<cudaMemPool_t>(&only);
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  *static_cast<std::uint64_t*>(value) = 0;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, std::size_t) { return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) {
  const Lock lock(fake_cuda::mutex());
  state().memory.trim();
  return counted("cudaMemPoolTrimTo");
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
  const Lock lock(fake_cuda::mutex());
  *out = {};
  const bool ours = state().memory.contains(pointer);
  out->type = ours ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  out->devicePointer = const_cast<void*>(pointer);
  out->hostPointer = ours ? nullptr : const_cast<void*>(pointer);
  return cudaSuccess;
}
cudaError_t cudaGetSymbolAddress(void** out, const void*) {
  static char memory[1 << 16];
  *out = memory;
  return cudaSuccess;
}

// ---- Copies

static const char* direction(cudaMemcpyKind kind) {
  return kind == cudaMemcpyHostToDevice   ? "copy to the device"
         : kind == cudaMemcpyDeviceToHost ? "copy to the host"
                                          : "copy on the device";
}
static bool copies_on_device() {
  static const char* const wanted = std::getenv("FAKE_CUDA_COPIES");
  return wanted == nullptr || std::string_view(wanted) != "no";
}
static cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (const auto answer = fake_cuda::put(stream, direction(kind), "copy")) return *answer;
  if (kind == cudaMemcpyDeviceToDevice && !copies_on_device()) return cudaSuccess;
  // LibTorch compares tensors on the device and downloads one byte. The comparison computed nothing: "not equal".
  if (bytes == 1 && kind == cudaMemcpyDeviceToHost) {
    *static_cast<unsigned char*>(to) = 0;
  } else {
    std::memmove(to, from, bytes);
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy(to, from, bytes, kind, stream);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (forbidden("cudaMemcpy")) return cudaErrorStreamCaptureUnsupported;
  fake_cuda_count("cudaMemcpy");
  const cudaError_t result = copy(to, from, bytes, kind, nullptr);
  fake_cuda::finish_default_stream();
  return result;
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  if (const auto answer = fake_cuda::put(stream, direction(kind), "copy")) return *answer;
  for (std::size_t row = 0; row < height; ++row) {
    std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, cudaStream_t stream) {
  return copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}
cudaError_t cudaMemcpyToSymbol(const void*, const void*, std::size_t, std::size_t, cudaMemcpyKind) {
  return forbidden("cudaMemcpyToSymbol") ? cudaErrorStreamCaptureUnsupported : counted("cudaMemcpyToSymbol");
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  if (forbidden("cudaMemset")) return cudaErrorStreamCaptureUnsupported;
  if (const auto answer = fake_cuda::put(nullptr, "cudaMemset", "copy")) return *answer;
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (const auto answer = fake_cuda::put(stream, "cudaMemsetAsync", "copy")) return *answer;
  std::memset(to, value, bytes);
  return cudaSuccess;
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
