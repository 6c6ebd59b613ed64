// The fake CUDA runtime counts what must not happen, and fails where a GPU would.
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/ops/find_boxes.hpp"
#include "gpu/ops/letterbox.hpp"
#include "tests/gpu/fake_cuda/runtime.hpp"

// The names are those of NVIDIA.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" void** __cudaRegisterFatBinary(void*);
extern "C" void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*);
extern "C" cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t);
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace {

/// How often a name was counted since this object was made.
class Counted {
 public:
  explicit Counted(std::string name) : name_(std::move(name)), before_(fake_cuda::count_of(name_)) {}
  [[nodiscard]] std::int64_t now() const { return fake_cuda::count_of(name_) - before_; }

 private:
  std::string name_;
  std::int64_t before_;
};

cudaStream_t stream() {
  static const cudaStream_t it = [] {
    cudaStream_t made = nullptr;
    CHECK(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking) == cudaSuccess);
    return made;
  }();
  return it;
}

cudaError_t launch(dim3 grid, dim3 block, cudaStream_t on) {
  static const char function = 0;
  static const bool registered = [] {
    __cudaRegisterFunction(__cudaRegisterFatBinary(nullptr), &function, nullptr, "a_kernel_of_others", -1, nullptr,
                           nullptr, nullptr, nullptr, nullptr);
    return true;
  }();
  CHECK(registered);
  return __cudaLaunchKernel(reinterpret_cast<cudaKernel_t>(const_cast<char*>(&function)), grid, block, nullptr, 0, on);
}

}  // namespace

TEST_CASE("work on the default stream is counted") {
  std::vector<char> host(100);
  void* device = nullptr;
  REQUIRE(cudaMalloc(&device, 100) == cudaSuccess);
  const Counted copies("copy on the default stream"), launches("launch on the default stream");
  CHECK(cudaMemcpyAsync(device, host.data(), 100, cudaMemcpyHostToDevice, stream()) == cudaSuccess);
  CHECK(launch({1}, {1}, stream()) == cudaSuccess);
  CHECK(copies.now() == 0);
  CHECK(launches.now() == 0);
  CHECK(cudaMemcpyAsync(device, host.data(), 100, cudaMemcpyHostToDevice, nullptr) == cudaSuccess);
  CHECK(cudaMemcpyAsync(device, host.data(), 100, cudaMemcpyHostToDevice, cudaStreamPerThread) == cudaSuccess);
  CHECK(launch({1}, {1}, nullptr) == cudaSuccess);
  CHECK(copies.now() == 2);
  CHECK(launches.now() == 1);
  CHECK(cudaFree(device) == cudaSuccess);
}

TEST_CASE("a launch that a GPU refuses fails, and the error stays until it is read") {
  for (const auto& [grid, block] :
       {std::pair{dim3{0}, dim3{1}}, {dim3{1, 65536}, dim3{1}}, {dim3{1}, dim3{0}}, {dim3{1}, dim3{1025}}}) {
    CHECK(launch(grid, block, stream()) == cudaErrorInvalidConfiguration);
    CHECK(cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    CHECK(cudaGetLastError() == cudaSuccess);
  }
}

TEST_CASE("memory runs out, and a pool keeps what was freed until it is trimmed") {
  std::size_t free = 0, total = 0;
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(free == total);
  void *first = nullptr, *second = nullptr;
  REQUIRE(cudaMallocAsync(&first, total / 2 + 1, stream()) == cudaSuccess);
  CHECK(cudaMalloc(&second, total / 2) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  REQUIRE(cudaFreeAsync(first, stream()) == cudaSuccess);
  CHECK(cudaMalloc(&second, total / 2) == cudaErrorMemoryAllocation);
  cudaGetLastError();
  REQUIRE(cudaMallocAsync(&second, total / 2, stream()) == cudaSuccess);
  CHECK(second == first);
  REQUIRE(cudaFreeAsync(second, stream()) == cudaSuccess);
  cudaMemPool_t pool = nullptr;
  REQUIRE(cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess);
  REQUIRE(cudaMemPoolTrimTo(pool, 0) == cudaSuccess);
  REQUIRE(cudaMalloc(&second, total / 2) == cudaSuccess);
  REQUIRE(cudaFree(second) == cudaSuccess);
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(free == total);
}

/// Whether this work ends the process.
template <class Work>
bool aborts(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::freopen("/dev/null", "w", stderr);
    std::signal(SIGABRT, SIG_DFL);
    work();
    std::_Exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

TEST_CASE("a grid that does not fit the work of a kernel ends the process, and so does a kernel without a row") {
  constexpr const char* store = "millrace::(anonymous namespace)::store_parcel(millrace::Parcel, unsigned char*, int)";
  std::string from = "seven b", to(7, ' ');
  void* out = to.data();
  int bytes = 7;
  void* arguments[] = {from.data(), static_cast<void*>(&out), &bytes};
  fake_cuda::run_kernel(store, {{1}, {7}}, arguments);
  CHECK(to == from);
  CHECK_FALSE(aborts([&] { fake_cuda::run_kernel(store, {{2}, {4}}, arguments); }));
  CHECK(aborts([&] { fake_cuda::run_kernel(store, {{2}, {3}}, arguments); }));
  CHECK(aborts([&] { fake_cuda::run_kernel(store, {{1, 1, 2}, {7}}, arguments); }));
  // Kernels write where the index of their block says, without a check.
  constexpr const char* best = "millrace::(anonymous namespace)::keep_best(millrace::HeadJob)";
  millrace::HeadJob job{};
  void* heads[] = {&job};
  CHECK(aborts([&] { fake_cuda::run_kernel(best, {{1}, {512}}, heads); }));  // it has no slots
  constexpr const char* tiles = "void millrace::(anonymous namespace)::letterbox<float>(millrace::LetterboxJob)";
  millrace::LetterboxJob letterboxes{};
  letterboxes.width = 64;
  letterboxes.height = 33;
  void* inputs[] = {&letterboxes};
  CHECK_FALSE(aborts([&] { fake_cuda::run_kernel(tiles, {{2, 2, 0}, {32, 16}}, inputs); }));
  CHECK(aborts([&] { fake_cuda::run_kernel(tiles, {{2, 1, 0}, {32, 16}}, inputs); }));
  CHECK(aborts([&] { fake_cuda::run_kernel(tiles, {{3, 2, 0}, {32, 16}}, inputs); }));
  CHECK(aborts([&] { fake_cuda::run_kernel(tiles, {{2, 2, 0}, {32, 8}}, inputs); }));
  CHECK(aborts([] { fake_cuda::run_kernel("millrace::(anonymous namespace)::new_kernel(int)", {{1}, {1}}, nullptr); }));
  CHECK_FALSE(aborts([] { fake_cuda::run_kernel("at::native::new_kernel(int)", {{1}, {1}}, nullptr); }));
}

TEST_CASE("launches through the driver are counted, and those on the default stream") {
  const Counted launches("cuLaunchKernel"), on_default("launch on the default stream");
  CHECK(fake_cuda_put("cuLaunchKernel", "launch", stream()) == 0);
  CHECK(on_default.now() == 0);
  CHECK(fake_cuda_put("cuLaunchKernel", "launch", nullptr) == 0);
  CHECK(launches.now() == 2);
  CHECK(on_default.now() == 1);
}

TEST_CASE("a profiler sees the launches between its start and its stop, without copies") {
  const std::string file = "/tmp/fake_cuda_launches." + std::to_string(getpid());
  setenv("FAKE_CUDA_LAUNCHES", file.c_str(), 1);
  CHECK(fake_cuda_launch("before", stream()) == 0);
  cudaProfilerStart();
  CHECK(fake_cuda_launch("triton_gelu", stream()) == 0);
  CHECK(fake_cuda_put("cublasGemmEx", "product", stream()) == 0);
  CHECK(launch({1}, {1}, stream()) == cudaSuccess);
  int byte = 0;
  CHECK(cudaMemsetAsync(&byte, 0, 1, stream()) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(fake_cuda_launch("captured", stream()) == 0);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream(), &graph) == cudaSuccess);
  cudaGraphDestroy(graph);
  cudaProfilerStop();
  CHECK(fake_cuda_launch("after", stream()) == 0);
  unsetenv("FAKE_CUDA_LAUNCHES");
  std::ifstream in(file);
  CHECK(std::string(std::istreambuf_iterator<char>(in), {}) == "\ttriton_gelu\n\tcublasGemmEx\n\ta_kernel_of_others\n");
  std::remove(file.c_str());
}

TEST_CASE("memory that was not allocated cannot be freed") {
  int mine = 0;
  CHECK(cudaFree(&mine) == cudaErrorInvalidValue);
  CHECK(cudaFreeAsync(&mine, stream()) == cudaErrorInvalidValue);
  cudaGetLastError();
}

namespace {

/// Begins a capture, does `work` and ends the capture. Returns the result of the end.
template <class Work>
cudaError_t capture(cudaStreamCaptureMode mode, const Work& work) {
  REQUIRE(cudaStreamBeginCapture(stream(), mode) == cudaSuccess);
  work();
  cudaGraph_t graph = nullptr;
  const cudaError_t result = cudaStreamEndCapture(stream(), &graph);
  CHECK((graph == nullptr) == (result != cudaSuccess));
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();
  return result;
}

cudaEvent_t recorded_event(cudaStream_t on) {
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreate(&event) == cudaSuccess);
  REQUIRE(cudaEventRecord(event, on) == cudaSuccess);
  return event;
}

template <class Work>
cudaError_t on_another_thread(const Work& work) {
  cudaError_t result = cudaSuccess;
  std::thread([&] { result = work(); }).join();
  return result;
}

}  // namespace

TEST_CASE("a capture ends where its thread allocates, waits or works on the default stream, except in relaxed mode") {
  void *device = nullptr, *host = nullptr;
  REQUIRE(cudaMalloc(&device, 100) == cudaSuccess);
  REQUIRE(cudaHostAlloc(&host, 100, 0) == cudaSuccess);
  cudaStream_t other = nullptr;
  REQUIRE(cudaStreamCreate(&other) == cudaSuccess);
  const cudaEvent_t event = recorded_event(other);
  void *more_device = nullptr, *more_host = nullptr;
  const std::pair<const char*, std::function<cudaError_t()>> calls[] = {
      {"cudaMalloc", [&] { return cudaMalloc(&more_device, 1); }},
      {"cudaFree", [&] { return cudaFree(more_device); }},
      {"cudaHostAlloc", [&] { return cudaHostAlloc(&more_host, 1, 0); }},
      {"cudaFreeHost", [&] { return cudaFreeHost(more_host); }},
      {"cudaHostRegister", [&] { return cudaHostRegister(host, 1, 0); }},
      {"cudaHostUnregister", [&] { return cudaHostUnregister(host); }},
      {"cudaMemcpy", [&] { return cudaMemcpy(device, host, 100, cudaMemcpyHostToDevice); }},
      {"cudaMemset", [&] { return cudaMemset(device, 0, 100); }},
      {"cudaStreamQuery", [&] { return cudaStreamQuery(other); }},
      {"cudaStreamSynchronize", [&] { return cudaStreamSynchronize(other); }},
      {"cudaEventQuery", [&] { return cudaEventQuery(event); }},
      {"cudaEventSynchronize", [&] { return cudaEventSynchronize(event); }},
      {"launch on the default stream", [&] { return launch({1}, {1}, nullptr); }},
      {"copy on the default stream", [&] { return cudaMemsetAsync(device, 0, 100, nullptr); }}};
  for (const auto& [name, call] : calls) {
    CAPTURE(name);
    const Counted refused(std::string(name) + " during a capture");
    const cudaError_t error = std::string(name).ends_with("default stream") ? cudaErrorStreamCaptureImplicit
                                                                            : cudaErrorStreamCaptureUnsupported;
    for (const cudaStreamCaptureMode mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
      CHECK(capture(mode, [&] {
              CHECK(call() == error);
              CHECK(cudaGetLastError() == error);
              CHECK(launch({1}, {1}, stream()) == cudaErrorStreamCaptureInvalidated);
            }) == cudaErrorStreamCaptureInvalidated);
    }
    CHECK(refused.now() == 2);
    // Another thread is only stopped by a global capture.
    CHECK(capture(cudaStreamCaptureModeGlobal, [&] { CHECK(on_another_thread(call) == error); }) ==
          cudaErrorStreamCaptureInvalidated);
    CHECK(refused.now() == 3);
  }
  for (const auto& [name, call] : calls) {
    CAPTURE(name);
    CHECK(capture(cudaStreamCaptureModeRelaxed, [&] { CHECK(call() == cudaSuccess); }) == cudaSuccess);
  }
  for (const auto& [name, call] : calls) {
    CAPTURE(name);
    CHECK(capture(cudaStreamCaptureModeThreadLocal, [&] { CHECK(on_another_thread(call) == cudaSuccess); }) ==
          cudaSuccess);
  }
  // A thread can allow itself such calls, as LibTorch's allocator does.
  for (const auto& [name, call] : calls) {
    CAPTURE(name);
    CHECK(capture(cudaStreamCaptureModeGlobal, [&] {
            cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
            CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
            CHECK(mode == cudaStreamCaptureModeGlobal);
            CHECK(call() == cudaSuccess);
            CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
            CHECK(mode == cudaStreamCaptureModeRelaxed);
          }) == cudaSuccess);
  }
  CHECK(cudaFree(device) == cudaSuccess);
  CHECK(cudaFreeHost(host) == cudaSuccess);
  CHECK(cudaEventDestroy(event) == cudaSuccess);
  CHECK(cudaStreamDestroy(other) == cudaSuccess);
}

TEST_CASE("in no mode can anybody wait for what a capture took, or ask for its state") {
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreate(&event) == cudaSuccess);
  const std::pair<cudaError_t, std::function<cudaError_t()>> calls[] = {
      {cudaErrorStreamCaptureUnsupported, [] { return cudaStreamSynchronize(stream()); }},
      {cudaErrorStreamCaptureUnsupported, [] { return cudaStreamQuery(stream()); }},
      {cudaErrorStreamCaptureUnsupported, [] { return cudaDeviceSynchronize(); }},
      {cudaErrorStreamCaptureUnsupported,
       [] {
         return cudaStreamAddCallback(
             stream(), [](cudaStream_t, cudaError_t, void*) {}, nullptr, 0);
       }},
      {cudaErrorCapturedEvent, [&] { return cudaEventQuery(event); }},
      {cudaErrorCapturedEvent, [&] { return cudaEventSynchronize(event); }}};
  for (const auto& [error, call] : calls) {
    CHECK(capture(cudaStreamCaptureModeRelaxed, [&, error = error, &call = call] {
            CHECK(cudaEventRecord(event, stream()) == cudaSuccess);
            CHECK(on_another_thread(call) == error);
            cudaStreamCaptureStatus status{};
            CHECK(cudaStreamIsCapturing(stream(), &status) == cudaSuccess);
            CHECK(status == cudaStreamCaptureStatusInvalidated);
          }) == cudaErrorStreamCaptureInvalidated);
  }
  CHECK(cudaEventQuery(event) == cudaErrorCapturedEvent);  // also later
  cudaGetLastError();
  CHECK(cudaEventRecord(event, stream()) == cudaSuccess);
  CHECK(cudaEventSynchronize(event) == cudaSuccess);
  // A captured stream cannot depend on work before the capture.
  CHECK(capture(cudaStreamCaptureModeRelaxed, [&] {
          CHECK(cudaStreamWaitEvent(stream(), event, 0) == cudaErrorStreamCaptureIsolation);
        }) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaEventDestroy(event) == cudaSuccess);
}

TEST_CASE("a graph has the operations of its capture, and only its launches are counted") {
  std::vector<char> bytes(4);
  const Counted launches("launch"), copies("copy on the device"), fills("cudaMemsetAsync"), driver("cuLaunchKernel");
  const Counted graphs("cudaGraphLaunch"), operations("operations of graphs");
  REQUIRE(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(launch({1}, {1}, stream()) == cudaSuccess);
  CHECK(fake_cuda_put("cuLaunchKernel", "launch", stream()) == 0);
  CHECK(cudaMemcpyAsync(&bytes[0], &bytes[1], 1, cudaMemcpyDeviceToDevice, stream()) == cudaSuccess);
  CHECK(cudaMemcpy2DAsync(&bytes[0], 1, &bytes[1], 1, 1, 1, cudaMemcpyDeviceToDevice, stream()) == cudaSuccess);
  CHECK(cudaMemsetAsync(bytes.data(), 7, 1, stream()) == cudaSuccess);
  CHECK(bytes[0] == 0);
  cudaGraph_t graph = nullptr;
  CHECK(on_another_thread([&] { return cudaStreamEndCapture(stream(), &graph); }) == cudaErrorStreamCaptureWrongThread);
  REQUIRE(cudaStreamEndCapture(stream(), &graph) == cudaSuccess);
  cudaGraphExec_t made = nullptr;
  REQUIRE(cudaGraphInstantiateWithFlags(&made, graph, 0) == cudaSuccess);
  CHECK(cudaGraphLaunch(made, stream()) == cudaSuccess);
  CHECK(launches.now() + copies.now() + fills.now() + driver.now() == 0);
  CHECK(graphs.now() == 1);
  CHECK(operations.now() == 5);
  CHECK(cudaGraphExecDestroy(made) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("work is not ready before somebody has waited for it") {
  REQUIRE(cudaStreamSynchronize(stream()) == cudaSuccess);
  const cudaEvent_t idle = recorded_event(stream());
  CHECK(cudaEventQuery(idle) == cudaSuccess);
  CHECK(cudaStreamQuery(stream()) == cudaSuccess);
  std::vector<char> bytes(2);
  cudaStream_t other = nullptr;
  REQUIRE(cudaStreamCreate(&other) == cudaSuccess);
  const std::function<void()> works[] = {
      [] { CHECK(launch({1}, {1}, stream()) == cudaSuccess); },
      [] { CHECK(fake_cuda_put("cublasGemmEx", "product", stream()) == 0); },
      [&] { CHECK(cudaMemcpyAsync(&bytes[0], &bytes[1], 1, cudaMemcpyDeviceToHost, stream()) == cudaSuccess); }};
  for (const auto& work : works) {
    work();
    const cudaEvent_t event = recorded_event(stream());
    work();
    const cudaEvent_t later = recorded_event(stream());
    const std::function<cudaError_t()> waits[] = {[&] { return cudaEventSynchronize(event); },
                                                  [&] { return cudaStreamSynchronize(stream()); }};
    for (const auto& wait : waits) {
      CHECK(cudaEventQuery(later) == cudaErrorNotReady);
      CHECK(cudaStreamQuery(stream()) == cudaErrorNotReady);
      CHECK(cudaGetLastError() == cudaSuccess);  // LibTorch would take it for that of a launch
      float ms = 0;
      CHECK(cudaEventElapsedTime(&ms, idle, later) == cudaErrorNotReady);
      CHECK(cudaGetLastError() == cudaErrorNotReady);
      CHECK(cudaStreamSynchronize(other) == cudaSuccess);  // says nothing about this stream
      CHECK(cudaEventQuery(later) == cudaErrorNotReady);
      CHECK(wait() == cudaSuccess);
      CHECK(cudaEventQuery(event) == cudaSuccess);
    }
    CHECK(cudaEventQuery(later) == cudaSuccess);
    CHECK(cudaStreamQuery(stream()) == cudaSuccess);
    float ms = -1;
    CHECK(cudaEventElapsedTime(&ms, event, later) == cudaSuccess);
    CHECK(ms >= 0);
    work();
    CHECK(cudaEventRecord(event, stream()) == cudaSuccess);
    CHECK(cudaEventQuery(event) == cudaErrorNotReady);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(cudaEventQuery(event) == cudaSuccess);
    CHECK(cudaEventDestroy(event) == cudaSuccess);
    CHECK(cudaEventDestroy(later) == cudaSuccess);
  }
  CHECK(cudaEventDestroy(idle) == cudaSuccess);
  CHECK(cudaStreamDestroy(other) == cudaSuccess);
}

TEST_CASE("pinned memory counts for a lane if its thread has put work on a stream before") {
  const Counted all("cudaHostAlloc"), by_lanes("cudaHostAlloc by a lane");
  const auto pin = [] {
    void* block = nullptr;
    const cudaError_t error = cudaHostAlloc(&block, 100, 0);
    return error == cudaSuccess ? cudaFreeHost(block) : error;
  };
  CHECK(on_another_thread(pin) == cudaSuccess);
  CHECK(by_lanes.now() == 0);
  CHECK(on_another_thread([&] {
          CHECK(launch({1}, {1}, stream()) == cudaSuccess);
          return pin();
        }) == cudaSuccess);
  CHECK(by_lanes.now() == 1);
  CHECK(all.now() == 2);
}
