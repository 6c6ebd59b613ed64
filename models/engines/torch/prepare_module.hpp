#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace millrace {

struct ModuleOptions {
  c10::ScalarType type;  ///< of weights and results
  c10::Device device;    ///< meta: shapes without values
  bool tf32;             ///< convolutions may round to TF32, on a GPU
  bool freeze;           ///< turn weights into constants, and optimize the graphs
  bool channels_last;    ///< the order of the weights of convolutions, with `freeze`
};

/// Prepares a module that was loaded onto the CPU for calls of these methods with `options`.
/// The copies to a GPU may still be running when this returns. Throws c10::Error.
void prepare_module(torch::jit::Module& module, const std::vector<std::string>& methods, const ModuleOptions& options);

}  // namespace millrace
