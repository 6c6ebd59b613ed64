// libmillrace_torch_graph.so. It is not linked with LibTorch's CUDA part, so that it can be built without one.
// Without a GPU, nobody opens it.
#include "models/engines/torch/call_graph.hpp"

#include <ATen/cuda/CUDAGraph.h>

#include <memory>

namespace {

using at::cuda::CUDAGraph;

void* begin(const void* sibling) {
  auto graph = std::make_unique<CUDAGraph>();
  c10::MempoolId_t pool{0, 0};
  // pool() changes nothing.
  if (sibling != nullptr) pool = static_cast<CUDAGraph*>(const_cast<void*>(sibling))->pool();
  // Other threads may allocate meanwhile.
  graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
  return graph.release();
}
void end(void* graph) { static_cast<CUDAGraph*>(graph)->capture_end(); }
void replay(void* graph) { static_cast<CUDAGraph*>(graph)->replay(); }
void free_graph(void* graph) { delete static_cast<CUDAGraph*>(graph); }

}  // namespace

extern "C" const millrace::GraphFunctions* millrace_torch_graph() {
  static const millrace::GraphFunctions functions{begin, end, replay, free_graph};
  return &functions;
}
