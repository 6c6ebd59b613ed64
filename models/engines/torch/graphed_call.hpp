#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "base/tensor.hpp"

namespace millrace {

/// One call of a model as a CUDA graph, for measurements: launching it takes one call of CUDA.
/// Its outputs are valid until the next call. The newest shape replaces the one before.
class GraphedCall {
 public:
  using Compute = std::function<std::vector<Tensor>(const std::vector<at::Tensor>& inputs)>;

  GraphedCall() = default;
  GraphedCall(const GraphedCall&) = delete;
  GraphedCall& operator=(const GraphedCall&) = delete;
  ~GraphedCall() { forget(); }

  /// `name` is that of the method. The first calls are plain ones, since libraries allocate and make plans in them.
  /// Throws what `compute` throws, and std::runtime_error if it cannot be captured.
  std::vector<Tensor> call(const std::string& name, const std::vector<at::Tensor>& inputs, const Compute& compute);

 private:
  void capture(const std::vector<at::Tensor>& inputs, const Compute& compute);
  void forget();

  std::string key_;
  int plain_calls_ = 0;
  void* graph_ = nullptr;
  std::vector<at::Tensor> inputs_;
  std::vector<Tensor> outputs_;
};

}  // namespace millrace
