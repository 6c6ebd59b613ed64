// libmillrace_torch_graph.so. It is not linked with LibTorch's CUDA part, so that it can be built without one.
// Without a GPU, nobody opens it.
#include "models/engines/torch/call_graph.hpp"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>

#include <exception>
#include <memory>

namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

struct Recorded {
  at::cuda::CUDAGraph graph;
  c10::MempoolId_t pool;
  c10::DeviceIndex device;
};

// A capture that failed leaves LibTorch's allocators in their state during captures, with a pointer to the graph.
void leave_capture(const Recorded& recorded) {
  try {
    allocator::endAllocateToPool(recorded.device, recorded.pool);
    allocator::releasePool(recorded.device, recorded.pool);
  } catch (const std::exception&) {  // it has left that state
  }
  try {
    at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(recorded.pool);
    at::getHostAllocator(at::kCUDA)->release_pool(recorded.pool);
  } catch (const std::exception&) {  // likewise
  }
}

void* begin(const void* sibling) {
  const auto* const known = static_cast<const Recorded*>(sibling);
  const c10::MempoolId_t pool = known == nullptr ? at::cuda::graph_pool_handle() : known->pool;
  std::unique_ptr<Recorded> recorded(new Recorded{{}, pool, at::cuda::getCurrentCUDAStream().device_index()});
  try {
    // Other threads may allocate meanwhile.
    recorded->graph.capture_begin(recorded->pool, cudaStreamCaptureModeThreadLocal);
  } catch (const std::exception&) {
    leave_capture(*recorded);
    throw;
  }
  return recorded.release();
}
void end(void* graph) {
  auto* const recorded = static_cast<Recorded*>(graph);
  try {
    recorded->graph.capture_end();
  } catch (const std::exception&) {
    leave_capture(*recorded);
    throw;
  }
}
void replay(void* graph) { static_cast<Recorded*>(graph)->graph.replay(); }
void free_graph(void* graph) { delete static_cast<Recorded*>(graph); }
void trim() { allocator::emptyCache(); }

}  // namespace

extern "C" const millrace::GraphFunctions* millrace_torch_graph() {
  static const millrace::GraphFunctions functions{begin, end, replay, free_graph, trim};
  return &functions;
}
