#include "models/engines/torch/graphed_calls.hpp"

#include <ATen/Functions.h>
#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
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

const GraphFunctions& graph_functions() {
  static const GraphFunctions* const functions = open_functions();
  return *functions;
}

bool held_elsewhere(const Tensor& tensor) { return tensor.storage.use_count() > 1; }

}  // namespace

GraphedCalls::~GraphedCalls() {
  for (auto& [key, shape] : shapes_) {
    for (const Graph& graph : shape.graphs) graph_functions().free(graph.handle);
  }
}

std::vector<Tensor> GraphedCalls::call(const std::string& name, const std::vector<at::Tensor>& inputs,
                                       const Compute& compute, GraphUse& use) {
  std::string sizes;
  for (const at::Tensor& input : inputs) sizes += c10::str(" ", input.sizes());
  Shape& shape = shapes_[name + sizes];
  if (!shape.called) {
    std::vector<Tensor> outputs = compute(inputs);
    shape.called = true;
    capture(shape, {name, sizes}, inputs, compute, use);
    return outputs;
  }
  const auto find_free = [&] {
    return std::ranges::find_if(shape.graphs,
                                [](const Graph& graph) { return std::ranges::none_of(graph.outputs, held_elsewhere); });
  };
  auto graph = find_free();
  if (graph == shape.graphs.end() && !shape.closed) {
    capture(shape, {name, sizes}, inputs, compute, use);
    graph = find_free();
  }
  if (graph == shape.graphs.end()) return compute(inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) graph->inputs[i].copy_(inputs[i], /*non_blocking=*/true);
  graph_functions().replay(graph->handle);
  ++use.launched;
  return graph->outputs;
}

void GraphedCalls::capture(Shape& shape, GraphUse::Refusal refusal, const std::vector<at::Tensor>& inputs,
                           const Compute& compute, GraphUse& use) {
  const auto refuse = [&](const std::exception& failure) {
    shape.closed = true;
    refusal.no_memory = says_out_of_memory(failure.what());
    use.refuse(std::move(refusal));
  };
  if (shape.graphs.size() == most_graphs_of_shape || graphs_ == most_graphs) {
    shape.closed = true;
    return;
  }
  Graph graph{};
  try {
    const GraphFunctions& functions = graph_functions();
    for (const at::Tensor& input : inputs) graph.inputs.push_back(input.clone());
    graph.handle = functions.begin(any_graph());
  } catch (const std::exception& failure) {
    return refuse(failure);
  }
  try {
    graph.outputs = compute(graph.inputs);
    graph_functions().end(graph.handle);
  } catch (const std::exception& failure) {
    graph.outputs.clear();
    try {
      graph_functions().end(graph.handle);
    } catch (const std::exception&) {  // the first error says more
    }
    graph_functions().free(graph.handle);
    return refuse(failure);
  }
  ++use.captured;
  ++graphs_;
  shape.graphs.push_back(std::move(graph));
}

const void* GraphedCalls::any_graph() const {
  for (const auto& [key, shape] : shapes_) {
    if (!shape.graphs.empty()) return shape.graphs.front().handle;
  }
  return nullptr;
}

}  // namespace millrace
