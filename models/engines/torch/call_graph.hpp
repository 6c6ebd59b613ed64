#pragma once

namespace millrace {

/// CUDA graphs of LibTorch, on the current stream of the calling thread. All functions may throw c10::Error.
/// libmillrace_torch_graph.so has them, because they need functions of LibTorch's CUDA part.
struct GraphFunctions {
  void* (*begin)();             ///< from here, work is captured and not done
  void (*end)(void* graph);     ///< until here
  void (*replay)(void* graph);  ///< does the work again, with the same memory
  void (*free)(void* graph);
};

}  // namespace millrace
