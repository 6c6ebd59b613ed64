// What a profiler sees of a program: its launches between cudaProfilerStart() and cudaProfilerStop(), each with the
// innermost NVTX range of its thread.
//   FAKE_CUDA_LAUNCHES=FILE            a line each is added there: range, tab, kernel.
//   NVTX_INJECTION64_PATH=this library lets NVTX tell about the ranges.
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/gpu/fake_cuda/runtime.hpp"

namespace {

std::atomic<bool> profiling = false;
thread_local std::vector<std::string> ranges;

int push(const char* name) {
  ranges.emplace_back(name);
  return static_cast<int>(ranges.size()) - 1;
}

int pop() {
  if (ranges.empty()) return -1;
  ranges.pop_back();
  return static_cast<int>(ranges.size());
}

}  // namespace

void fake_cuda::profile(std::string_view kernel, std::string_view kind) {
  const char* file = std::getenv("FAKE_CUDA_LAUNCHES");
  if (!profiling || file == nullptr || kind == "copy") return;
  const std::unique_ptr<std::FILE, decltype(&std::fclose)> out(std::fopen(file, "a"), &std::fclose);
  if (!out) return;
  std::fprintf(out.get(), "%s\t%.*s\n", ranges.empty() ? "" : ranges.back().c_str(), static_cast<int>(kernel.size()),
               kernel.data());
}

// The names are those of NVIDIA.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

cudaError_t cudaProfilerStart() {
  profiling = true;
  return cudaSuccess;
}
cudaError_t cudaProfilerStop() {
  profiling = false;
  return cudaSuccess;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
}
// NOLINTEND(readability-identifier-naming)
