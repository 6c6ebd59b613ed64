// A CUDA runtime for machines without a GPU, in the place of libcudart. It counts what a program asks of the GPU.
// Device memory is memory of the host and can run out. All work is done at once, in the thread that asks for it.
// Kernels of Millrace run on the host (kernels.cpp). Those of LibTorch do nothing, so their results mean nothing.
//
// Variables of the environment:
//   FAKE_CUDA_REPORT=FILE   write the counts there at the end, a line each: number, tab, name
//   FAKE_CUDA_BYTES=N       memory of the GPU (default 140 GiB)
#include <cuda_runtime_api.h>
#include <cxxabi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "tests/gpu/fake_cuda/memory.hpp"
#include "tests/gpu/fake_cuda/runtime.hpp"

namespace {

using fake_cuda::failed;
using fake_cuda::Memory;
using Clock = std::chrono::steady_clock;

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
  std::recursive_mutex mutex;
  std::map<std::string, std::int64_t> counts;
  std::unordered_map<const void*, Kernel> kernels;
  std::set<cudaStream_t> streams;
  std::map<cudaStream_t, Clock::time_point> busy_until;  ///< by a kernel that idles
  std::map<cudaEvent_t, Clock::time_point> events;
  std::map<cudaStream_t, std::int64_t> captures;  ///< operations so far, by stream
  Memory memory;
};

/// Never destroyed: other libraries call this one at their end.
State& state() {
  static auto* const it = new State;
  return *it;
}

}  // namespace

std::int64_t fake_cuda::count_of(const std::string& name) {
  const std::lock_guard lock(state().mutex);
  return state().counts[name];
}

// The names are those of NVIDIA.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {

void fake_cuda_count(const char* name) {
  const std::lock_guard lock(state().mutex);
  ++state().counts[name];
}

void fake_cuda_launched(const void* stream) {
  const std::lock_guard lock(state().mutex);
  ++state().counts["cuLaunchKernel"];
  if (!state().streams.contains(static_cast<cudaStream_t>(const_cast<void*>(stream))))
    ++state().counts["launch on the default stream"];
}

__attribute__((destructor)) static void write_report() {
  const char* file = std::getenv("FAKE_CUDA_REPORT");
  if (file == nullptr) return;
  const std::lock_guard lock(state().mutex);
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
  const std::lock_guard lock(state().mutex);
  state().kernels[function].mangled = name;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

namespace {
/// Whether the stream captures; then it gets one more operation. Only LibTorch captures, and its kernels do nothing.
bool captured(cudaStream_t stream) {
  const auto capture = state().captures.find(stream);
  if (capture == state().captures.end()) return false;
  ++capture->second;
  return true;
}

bool capturing(cudaStream_t stream) {
  const std::lock_guard lock(state().mutex);
  return state().captures.contains(stream);
}

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
    const std::lock_guard lock(state().mutex);
    const auto found = state().kernels.find(function);
    if (found == state().kernels.end()) return failed(cudaErrorInvalidDeviceFunction);
    Kernel& kernel = found->second;
    if (kernel.launches++ == 0) kernel.name = demangled(kernel.mangled);
    name = kernel.name;
    if (captured(launch.stream)) return cudaSuccess;
    ++state().counts["launch"];
    if (!state().streams.contains(launch.stream)) ++state().counts["launch on the default stream"];
  }
  if (!valid(launch.grid, launch.block)) return failed(cudaErrorInvalidConfiguration);
  const std::uint64_t ns = fake_cuda::run_kernel(name, {launch.grid, launch.block}, arguments);
  if (ns > 0) {
    const std::lock_guard lock(state().mutex);
    Clock::time_point& until = state().busy_until[launch.stream];
    until = std::max(until, Clock::now()) + std::chrono::nanoseconds(ns);
  }
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
  const std::lock_guard lock(state().mutex);
  fake_cuda_count("cudaMalloc");
  return allocated(out, state().memory.take(bytes));
}
cudaError_t cudaMallocAsync(void** out, std::size_t bytes, cudaStream_t) {
  const std::lock_guard lock(state().mutex);
  fake_cuda_count("cudaMallocAsync");
  return allocated(out, state().memory.take_from_pool(bytes));
}
cudaError_t cudaFree(void* block) {
  const std::lock_guard lock(state().mutex);
  if (block == nullptr) return cudaSuccess;
  fake_cuda_count("cudaFree");
  return state().memory.give(block) ? cudaSuccess : failed(cudaErrorInvalidValue);
}
cudaError_t cudaFreeAsync(void* block, cudaStream_t) {
  const std::lock_guard lock(state().mutex);
  fake_cuda_count("cudaFreeAsync");
  return state().memory.give_to_pool(block) ? cudaSuccess : failed(cudaErrorInvalidValue);
}
cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned) {
  fake_cuda_count("cudaHostAlloc");
  return allocated(out, std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
}
cudaError_t cudaFreeHost(void* block) {
  std::free(block);
  return counted("cudaFreeHost");
}
cudaError_t cudaHostRegister(void*, std::size_t, unsigned) { return counted("cudaHostRegister"); }
cudaError_t cudaHostUnregister(void*) { return counted("cudaHostUnregister"); }
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(state().mutex);
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
  const std::lock_guard lock(state().mutex);
  state().memory.trim();
  return counted("cudaMemPoolTrimTo");
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
  const std::lock_guard lock(state().mutex);
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
/// `what` is asked of this stream.
static void count_on(cudaStream_t stream, const char* what) {
  const std::lock_guard lock(state().mutex);
  fake_cuda_count(what);
  if (!state().streams.contains(stream)) fake_cuda_count("copy on the default stream");
}
static cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  {
    const std::lock_guard lock(state().mutex);
    if (captured(stream)) return cudaSuccess;
  }
  count_on(stream, direction(kind));
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
  fake_cuda_count("cudaMemcpy");
  return copy(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  for (std::size_t row = 0; row < height; ++row) {
    std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
  }
  count_on(stream, direction(kind));
  return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, cudaStream_t stream) {
  return copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}
cudaError_t cudaMemcpyToSymbol(const void*, const void*, std::size_t, std::size_t, cudaMemcpyKind) {
  return counted("cudaMemcpyToSymbol");
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  std::memset(to, value, bytes);
  count_on(nullptr, "cudaMemset");
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  {
    const std::lock_guard lock(state().mutex);
    if (captured(stream)) return cudaSuccess;
  }
  std::memset(to, value, bytes);
  count_on(stream, "cudaMemsetAsync");
  return cudaSuccess;
}

// ---- Streams and events

static Clock::time_point now_on(cudaStream_t stream) {
  const std::lock_guard lock(state().mutex);
  return std::max(Clock::now(), state().busy_until[stream]);
}
static cudaError_t make_stream(cudaStream_t* out) {
  const std::lock_guard lock(state().mutex);
  // Aligned: LibTorch keeps flags in the lowest bits of a stream's address.
  *out = static_cast<cudaStream_t>(std::aligned_alloc(64, 64));
  state().streams.insert(*out);
  return counted("cudaStreamCreate");
}
cudaError_t cudaStreamCreate(cudaStream_t* out) { return make_stream(out); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) { return make_stream(out); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned, int) { return make_stream(out); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(state().mutex);
  state().streams.erase(stream);
  state().busy_until.erase(stream);
  std::free(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (capturing(stream)) return failed(cudaErrorStreamCaptureUnsupported);
  std::this_thread::sleep_until(now_on(stream));
  return counted("cudaStreamSynchronize");
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return counted("cudaStreamWaitEvent"); }
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned) {
  callback(stream, cudaSuccess, data);
  return counted("cudaStreamAddCallback");
}
cudaError_t cudaDeviceSynchronize() { return counted("cudaDeviceSynchronize"); }

static cudaError_t make_event(cudaEvent_t* out) {
  const std::lock_guard lock(state().mutex);
  *out = static_cast<cudaEvent_t>(std::malloc(1));
  state().events[*out] = {};
  return counted("cudaEventCreate");
}
cudaError_t cudaEventCreate(cudaEvent_t* out) { return make_event(out); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) { return make_event(out); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(state().mutex);
  state().events.erase(event);
  std::free(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(state().mutex);
  state().events[event] = now_on(stream);
  return counted("cudaEventRecord");
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventQuery(cudaEvent_t) { return counted("cudaEventQuery"); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Clock::time_point until;
  {
    const std::lock_guard lock(state().mutex);
    until = state().events[event];
  }
  std::this_thread::sleep_until(until);
  return counted("cudaEventSynchronize");
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  const std::lock_guard lock(state().mutex);
  *ms = std::chrono::duration<float, std::milli>(state().events[end] - state().events[begin]).count();
  return cudaSuccess;
}

// ---- Graphs: a graph is the number of its operations

static cudaGraph_t graph_of(std::int64_t operations) {
  return reinterpret_cast<cudaGraph_t>(new std::int64_t(operations));
}
static std::int64_t operations_of(const void* graph) { return *static_cast<const std::int64_t*>(graph); }

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const std::lock_guard lock(state().mutex);
  if (!state().streams.contains(stream) || !state().captures.try_emplace(stream, 0).second)
    return failed(cudaErrorStreamCaptureUnsupported);
  return counted("cudaStreamBeginCapture");
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(state().mutex);
  const auto capture = state().captures.find(stream);
  if (capture == state().captures.end()) return failed(cudaErrorIllegalState);
  *graph = graph_of(capture->second);
  state().captures.erase(capture);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = capturing(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**, std::size_t*) {
  if (id != nullptr) *id = reinterpret_cast<std::uintptr_t>(stream);
  return cudaStreamIsCapturing(stream, status);
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = reinterpret_cast<cudaGraphExec_t>(graph_of(operations_of(graph)));
  return counted("cudaGraphInstantiate");
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* number) {
  *number = static_cast<std::size_t>(operations_of(graph));
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  const std::lock_guard lock(state().mutex);
  if (!state().streams.contains(stream)) return failed(cudaErrorInvalidValue);
  state().counts["operations of graphs"] += operations_of(graph);
  return counted("cudaGraphLaunch");
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<std::int64_t*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete reinterpret_cast<std::int64_t*>(graph);
  return counted("cudaGraphExecDestroy");
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
