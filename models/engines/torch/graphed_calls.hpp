#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/tensor.hpp"
#include "models/graph_use.hpp"

namespace millrace {

/// The calls of models on one stream, as CUDA graphs: a call copies its inputs and launches a graph.
class GraphedCalls {
 public:
  using Compute = std::function<std::vector<Tensor>(const std::vector<at::Tensor>& inputs)>;

  GraphedCalls() = default;
  GraphedCalls(const GraphedCalls&) = delete;
  GraphedCalls& operator=(const GraphedCalls&) = delete;
  ~GraphedCalls();

  /// The first call of each shape is a plain one, since libraries allocate and make plans in it. A graph follows it.
  /// If a call cannot be captured, or its graph has no memory, the calls of its shape stay plain; `use` gets the reason.
  /// `name` is that of model and method. The outputs are not overwritten while somebody holds them.
  /// Throws what `compute` throws in a plain call.
  std::vector<Tensor> call(const std::string& name, const std::vector<at::Tensor>& inputs, const Compute& compute,
                           GraphUse& use);

 private:
  struct Graph {
    void* handle;
    std::vector<at::Tensor> inputs;
    std::vector<Tensor> outputs;
  };
  struct Shape {
    bool called = false;
    bool closed = false;          // gets no more graphs
    std::vector<Graph> graphs{};  // more than one if somebody holds the outputs of several calls
  };

  /// Adds a graph to the shape. If that is not possible, its calls stay plain, and `use` gets the refusal.
  void capture(Shape& shape, GraphUse::Refusal refusal, const std::vector<at::Tensor>& inputs, const Compute& compute,
               GraphUse& use);
  const void* any_graph() const;

  std::map<std::string, Shape> shapes_;
  std::size_t graphs_ = 0;  // of all shapes
};

}  // namespace millrace
