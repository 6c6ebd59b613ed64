// libmillrace_torch.so: all that is linked to LibTorch, and opened by models/engines/torch_plugin.cpp.
#include <ATen/Version.h>
#include <dlfcn.h>
#include <torch/version.h>

#include "models/engines/torch/torch_engine.hpp"

namespace millrace {
namespace {

TorchFacts facts() {
  Dl_info where{};
  const bool found = dladdr(reinterpret_cast<void*>(&at::get_cpu_capability), &where) != 0;
  return {found ? where.dli_fname : "", TORCH_VERSION, at::get_cpu_capability()};
}

}  // namespace

extern "C" const TorchInterface* millrace_torch() {
  static constexpr TorchInterface interface { torch_interface_version, MILLRACE_VERSION, make_torch_engine, facts };
  return &interface;
}

}  // namespace millrace
