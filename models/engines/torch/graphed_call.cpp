#include "models/engines/torch/graphed_call.hpp"

#include <ATen/Functions.h>
#include <dlfcn.h>

#include <filesystem>
#include <stdexcept>
#include <utility>

#include "models/engines/torch/call_graph.hpp"

namespace millrace {
namespace {

constexpr int plain_calls = 2;  // the allocator then has the memory that a call needs

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

}  // namespace

std::vector<Tensor> GraphedCall::call(const std::string& name, const std::vector<at::Tensor>& inputs,
                                      const Compute& compute) {
  std::string key = name;
  for (const at::Tensor& input : inputs) key += c10::str(" ", input.sizes());
  if (key != key_) {
    forget();
    key_ = std::move(key);
  }
  if (plain_calls_ < plain_calls) {
    ++plain_calls_;
    return compute(inputs);
  }
  if (graph_ == nullptr) capture(inputs, compute);
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs_[i].copy_(inputs[i], /*non_blocking=*/true);
  graph_functions().replay(graph_);
  return outputs_;
}

void GraphedCall::capture(const std::vector<at::Tensor>& inputs, const Compute& compute) {
  const GraphFunctions& functions = graph_functions();
  std::vector<at::Tensor> own;
  for (const at::Tensor& input : inputs) own.push_back(input.clone());
  void* const graph = functions.begin();
  const auto give_up = [&] {
    outputs_.clear();
    try {
      functions.end(graph);
    } catch (const std::exception&) {  // the first error says more
    }
    functions.free(graph);
  };
  try {
    outputs_ = compute(own);
    functions.end(graph);
  } catch (const c10::OutOfMemoryError&) {
    give_up();
    throw;
  } catch (const std::exception&) {
    give_up();
    // CUDA's message would tell that the device has failed.
    throw std::runtime_error(
        "its work cannot be captured as a CUDA graph; a model that waits for its GPU is one reason");
  }
  graph_ = graph;
  inputs_ = std::move(own);
}

void GraphedCall::forget() {
  if (graph_ != nullptr) graph_functions().free(graph_);
  graph_ = nullptr;
  plain_calls_ = 0;
  inputs_.clear();
  outputs_.clear();
  key_.clear();
}

}  // namespace millrace
