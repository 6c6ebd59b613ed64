// The fake CUDA runtime counts what must not happen, and fails where a GPU would.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
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
  constexpr const char* taps = "millrace::(anonymous namespace)::fill_taps(millrace::LetterboxJob)";
  millrace::LetterboxJob letterboxes{};
  letterboxes.longest_axis = 4;
  void* inputs[] = {&letterboxes};
  CHECK_FALSE(aborts([&] { fake_cuda::run_kernel(taps, {{1, 2, 0}, {4}}, inputs); }));
  CHECK(aborts([&] { fake_cuda::run_kernel(taps, {{1, 1, 0}, {4, 2}}, inputs); }));
  CHECK(aborts([] { fake_cuda::run_kernel("millrace::(anonymous namespace)::new_kernel(int)", {{1}, {1}}, nullptr); }));
  CHECK_FALSE(aborts([] { fake_cuda::run_kernel("at::native::new_kernel(int)", {{1}, {1}}, nullptr); }));
}

TEST_CASE("launches through the driver are counted, and those on the default stream") {
  const Counted launches("cuLaunchKernel"), on_default("launch on the default stream");
  fake_cuda_launched(stream());
  CHECK(on_default.now() == 0);
  fake_cuda_launched(nullptr);
  CHECK(launches.now() == 2);
  CHECK(on_default.now() == 1);
}

TEST_CASE("memory that was not allocated cannot be freed") {
  int mine = 0;
  CHECK(cudaFree(&mine) == cudaErrorInvalidValue);
  CHECK(cudaFreeAsync(&mine, stream()) == cudaErrorInvalidValue);
  cudaGetLastError();
}
