#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <memory>
#include <string>
#include <vector>

#include "models/method.hpp"
#include "models/variant.hpp"

namespace millrace {

/// A method of a variant. Each of its libraries computes calls with one number of rows.
class CompiledMethod {
 public:
  /// Loads the libraries of `calls`, smallest number of rows first, for "cpu" or "cuda".
  /// `lanes` is the maximum number of threads that call it at once. They share the weights.
  CompiledMethod(const Method& method, const std::vector<CompiledCall>& calls, const std::string& device, int lanes);

  /// The rows of its libraries, smallest first.
  std::vector<int> row_counts() const;

  /// Any number of rows. More rows than the largest library takes become several calls. A call with fewer rows than its
  /// library takes repeats its last row, whose results are dropped.
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs, void* stream) const;

 private:
  struct Library {
    std::int64_t rows;
    std::unique_ptr<torch::inductor::AOTIModelContainerRunner> runner;
  };

  static std::vector<at::Tensor> run(const Library& library, const std::vector<at::Tensor>& inputs, void* stream);

  std::vector<bool> by_row_;  // by input: its first dimension counts the rows of the call
  std::vector<Library> libraries_;
};

}  // namespace millrace
