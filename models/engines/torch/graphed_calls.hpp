#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/tensor.hpp"
#include "models/graph_use.hpp"

namespace millrace {

struct GraphFunctions;

/// The calls of a model on one stream, as CUDA graphs: a call copies its inputs and launches a graph.
class GraphedCalls {
 public:
  using Compute = std::function<std::vector<Tensor>(const std::vector<at::Tensor>& inputs)>;

  /// Without `functions`, those of the library next to the plug-in, which is opened for the first graph.
  explicit GraphedCalls(std::shared_ptr<GraphUse> use, const GraphFunctions* functions = nullptr)
      : use_(std::move(use)), functions_(functions) {}
  GraphedCalls(const GraphedCalls&) = delete;
  GraphedCalls& operator=(const GraphedCalls&) = delete;
  ~GraphedCalls();

  /// A thread's first call of a shape is a plain one, since libraries allocate and make plans in it. A graph follows.
  /// If a graph has no memory, the calls of its shape stay plain. If a call cannot be captured, those of its method do.
  /// `use` gets the reason. Calls beyond the largest number of graphs stay plain too.
  /// `name` is that of model and method. The outputs are not overwritten while somebody holds them.
  /// Throws what `compute` throws in a plain call.
  std::vector<Tensor> call(const std::string& name, const std::vector<at::Tensor>& inputs, const Compute& compute);

 private:
  struct Graph {
    void* handle;
    std::size_t number;  // of captures before it
    std::vector<at::Tensor> inputs;
    std::vector<Tensor> outputs;
  };
  struct Shape {
    std::thread::id called_on{};  // the thread of the last plain call
    bool closed = false;          // gets no more graphs
    std::vector<Graph> graphs{};  // more than one if somebody holds the outputs of several calls
  };

  /// Adds a graph to the shape. If that is not possible, its calls stay plain, and use_ gets the refusal.
  void capture(Shape& shape, GraphUse::Refusal refusal, const std::vector<at::Tensor>& inputs, const Compute& compute);
  Graph captured(const std::vector<at::Tensor>& inputs, const Compute& compute);
  bool may_launch(const Graph& graph) const;
  const void* any_graph() const;
  const GraphFunctions& functions();

  const std::shared_ptr<GraphUse> use_;
  const GraphFunctions* functions_;
  std::map<std::string, Shape> shapes_;
  std::set<std::string> never_;  // names of calls that cannot be captured
  std::size_t graphs_ = 0;       // of all shapes
};

}  // namespace millrace
