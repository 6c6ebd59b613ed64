#pragma once

namespace millrace {

/// CUDA graphs of LibTorch, on the current stream of the calling thread. All functions may throw c10::Error.
/// libmillrace_torch_graph.so has them, because they need functions of LibTorch's CUDA part.
/// Call begin(), end(), free() and trim() only with GraphUse::captures locked.
struct GraphFunctions {
  /// From here, work is captured and not done. Its memory is from the pool of `sibling`, a graph of the same stream, or
  /// from a new pool. Tensors that exist keep their memory. All other memory in the pool is shared.
  void* (*begin)(const void* sibling);
  void (*end)(void* graph);     ///< until here
  void (*replay)(void* graph);  ///< does the work again, with the same memory
  void (*free)(void* graph);
  void (*trim)();  ///< frees the memory that LibTorch keeps for later calls
};

}  // namespace millrace
