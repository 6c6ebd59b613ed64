#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "models/engines/torch/shared_constants.hpp"
#include "models/method.hpp"
#include "models/variant.hpp"

namespace millrace {

/// A method of a variant. Each of its libraries computes calls with one number of rows.
class CompiledMethod {
 public:
  /// Loads the libraries of `calls`, smallest number of rows first, for a CUDA device, or with -1 for the CPU.
  /// `lanes` is the maximum number of threads that call it at once on a CPU. They share the weights. Methods with the
  /// same `shared` share equal weights, and no method may be called after one of them was destroyed.
  CompiledMethod(const Method& method, const std::vector<CompiledCall>& calls, int device, int lanes,
                 SharedConstants& shared);

  /// Whether the libraries are loaded for calls on this stream.
  bool prepared(void* stream);
  /// Loads them, unless that was done. call() does so too.
  void prepare(void* stream) { runners_of(stream); }
  /// The rows of its libraries, smallest first.
  std::vector<int> row_counts() const;

  /// Any number of rows. More rows than the largest library takes become several calls. A call with fewer rows than its
  /// library takes repeats its last row, whose results are dropped. Each stream is that of one thread, null on a CPU.
  /// Its first call loads the libraries for it; streams share the weights.
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs, void* stream);

 private:
  using Runner = torch::inductor::AOTIModelContainerRunner;
  struct Library {
    std::int64_t rows;
    std::string file;
    Constants constants;  // of the first runner; those of further streams use them. Empty: each runner keeps its own
  };

  std::unique_ptr<Runner> load(const Library& library) const;
  std::unique_ptr<Runner> try_to_load(const Library& library) const;
  const std::vector<std::unique_ptr<Runner>>& runners_of(void* stream);
  static std::vector<at::Tensor> run(const Library& library, Runner& runner, const std::vector<at::Tensor>& inputs,
                                     void* stream);

  std::vector<bool> by_row_;  // by input: its first dimension counts the rows of the call
  int device_;
  int lanes_;
  std::vector<Library> libraries_;
  std::vector<std::unique_ptr<Runner>> first_;  // by library, until a stream takes them
  std::mutex mutex_;
  std::map<void*, std::vector<std::unique_ptr<Runner>>> runners_;  // by stream and library
};

}  // namespace millrace
