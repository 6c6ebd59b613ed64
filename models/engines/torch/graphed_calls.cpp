#include "models/engines/torch/graphed_calls.hpp"

#include <ATen/Functions.h>
#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "models/engine.hpp"
#include "models/engines/torch/call_graph.hpp"

namespace millrace {
namespace {

// Each keeps its inputs and outputs. A shape that several calls of a batch have needs a graph for each of them.
constexpr std::size_t most_graphs_of_shape = 4;
// A run has a few shapes of each method, since calls are padded. The others are rare.
constexpr std::size_t most_graphs = 64;

/// Opens the library, which lies next to the plug-in. LibTorch's CUDA part must be open.
const GraphFunctions* open_functions() {
  Dl_info self{};
  ::dladdr(reinterpret_cast<const void*>(&open_functions), &self);
  const auto file = std::filesystem::path(self.dli_fname).parent_path() / "libmillrace_torch_graph.so";
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const found = library == nullptr ? nullptr : ::dlsym(library, "millrace_torch_graph");
  if (found == nullptr) throw std::runtime_error(std::string("CUDA graphs are not possible: ") + ::dlerror());
  return reinterpret_cast<const GraphFunctions* (*)()>(found)();
}

bool held_elsewhere(const Tensor& tensor) { return tensor.storage.use_count() > 1; }

}  // namespace

GraphedCalls::~GraphedCalls() {
  const std::lock_guard lock(*use_->captures);
  for (auto& [key, shape] : shapes_) {
    for (const Graph& graph : shape.graphs) functions().free(graph.handle);
  }
}

const GraphFunctions& GraphedCalls::functions() {
  if (functions_ == nullptr) {
    static const GraphFunctions* const opened = open_functions();
    functions_ = opened;
  }
  return *functions_;
}

// Graphs share a pool. So the outputs of a graph may lie where graphs captured before it compute.
bool GraphedCalls::may_launch(const Graph& graph) const {
  for (const auto& [key, shape] : shapes_) {
    for (const Graph& other : shape.graphs) {
      if (other.number >= graph.number && std::ranges::any_of(other.outputs, held_elsewhere)) return false;
    }
  }
  return true;
}

std::vector<Tensor> GraphedCalls::call(const std::string& name, const std::vector<at::Tensor>& inputs,
                                       const Compute& compute) {
  std::string sizes;
  for (const at::Tensor& input : inputs) sizes += c10::str(" ", input.sizes());
  Shape& shape = shapes_[name + sizes];
  const auto find_free = [&] {
    return std::ranges::find_if(shape.graphs, [&](const Graph& graph) { return may_launch(graph); });
  };
  auto graph = find_free();
  if (graph == shape.graphs.end()) {
    if (shape.closed || never_.contains(name)) return compute(inputs);
    if (shape.called_on != std::this_thread::get_id()) {
      std::vector<Tensor> outputs = compute(inputs);
      shape.called_on = std::this_thread::get_id();
      capture(shape, {name, sizes}, inputs, compute);
      return outputs;
    }
    capture(shape, {name, sizes}, inputs, compute);
    graph = find_free();
    if (graph == shape.graphs.end()) return compute(inputs);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) graph->inputs[i].copy_(inputs[i], /*non_blocking=*/true);
  functions().replay(graph->handle);
  ++use_->launched;
  return graph->outputs;
}

void GraphedCalls::capture(Shape& shape, GraphUse::Refusal refusal, const std::vector<at::Tensor>& inputs,
                           const Compute& compute) {
  if (shape.graphs.size() == most_graphs_of_shape || graphs_ == most_graphs) {
    shape.closed = true;
    return;
  }
  const std::lock_guard lock(*use_->captures);
  for (const bool last : {false, true}) {
    try {
      Graph graph = captured(inputs, compute);
      graph.number = graphs_++;
      shape.graphs.push_back(std::move(graph));
      ++use_->captured;
      return;
    } catch (const std::exception& failure) {
      refusal.no_memory = says_out_of_memory(failure.what());
    }
    if (last || !refusal.no_memory) break;
    // What plain calls have left behind. During a capture, LibTorch does not free it.
    functions().trim();
  }
  shape.closed = true;
  if (!refusal.no_memory) never_.insert(refusal.method);
  use_->refuse(std::move(refusal));
}

GraphedCalls::Graph GraphedCalls::captured(const std::vector<at::Tensor>& inputs, const Compute& compute) {
  Graph graph{};
  for (const at::Tensor& input : inputs) graph.inputs.push_back(input.clone());
  graph.handle = functions().begin(any_graph());
  try {
    graph.outputs = compute(graph.inputs);
    functions().end(graph.handle);
    return graph;
  } catch (const std::exception&) {
    graph.outputs.clear();
    try {
      functions().end(graph.handle);
    } catch (const std::exception&) {  // the first error says more
    }
    functions().free(graph.handle);
    throw;
  }
}

const void* GraphedCalls::any_graph() const {
  for (const auto& [key, shape] : shapes_) {
    if (!shape.graphs.empty()) return shape.graphs.front().handle;
  }
  return nullptr;
}

}  // namespace millrace
