// libmillrace_torch.so: the only part of Millrace that links LibTorch. models/engines/torch_plugin.cpp opens it.
#include <ATen/Version.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/version.h>

#include <cstdint>
#include <string>

#include "models/engines/torch/torch_engine.hpp"

namespace millrace {
namespace {

// TORCH_VERSION is the version that this file was compiled for. The loaded library may have another.
// Not from at::show_config(): it asks for CUDA before an engine opens LibTorch's CUDA library, and LibTorch keeps the
// answer that there is none.
std::string loaded_version() {
  const std::uint64_t version = aoti_torch_abi_version();  // a byte each: major, minor, patch
  return std::to_string(version >> 56) + "." + std::to_string(version >> 48 & 0xff) + "." +
         std::to_string(version >> 40 & 0xff);
}

TorchFacts facts() {
  Dl_info where{};
  // Any function of LibTorch serves to find its file.
  const bool found = dladdr(reinterpret_cast<void*>(&at::get_cpu_capability), &where) != 0;
  return {found ? where.dli_fname : "", loaded_version(), at::get_cpu_capability()};
}

// It stays open. An engine that loads it later gets the same one.
std::string open_library(const std::filesystem::path& file) {
  return ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) == nullptr ? ::dlerror() : "";
}

}  // namespace

extern "C" const TorchInterface* millrace_torch() {
  static constexpr TorchInterface interface {
    torch_interface_version, MILLRACE_VERSION, TORCH_VERSION, make_torch_engine, facts, open_library
  };
  return &interface;
}

}  // namespace millrace
