#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <string>
#include <unordered_map>

namespace millrace {

/// Constants of a compiled library, such as weights, by their names in its code.
using Constants = std::unordered_map<std::string, at::Tensor>;

/// Lets the runner use these constants, which must outlive it, and frees its own.
void use_constants(Constants& constants, torch::inductor::AOTIModelContainerRunner& runner);

/// Constants of all libraries of an engine. Libraries for several row counts have the same weights.
class SharedConstants {
 public:
  /// The constants of a runner that was just loaded. If earlier runners have some of them, by name and bytes, this one
  /// uses theirs, and its own memory is freed. Earlier runners must outlive its last call. Empty: no other runner can use
  /// them, for example because some are on the CPU.
  Constants share(torch::inductor::AOTIModelContainerRunner& runner);

 private:
  std::unordered_multimap<std::string, at::Tensor> kept_;  // by name; methods may have different ones
};

}  // namespace millrace
