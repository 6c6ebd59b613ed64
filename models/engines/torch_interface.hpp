#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/engine.hpp"

namespace millrace {

/// A model as libmillrace_torch.so sees it.
struct TorchModel {
  std::filesystem::path file;  ///< TorchScript
  std::string folder;          ///< of the package, for messages while it loads
  std::string name;            ///< of the package, for messages of calls
  std::vector<Method> methods;
  std::int64_t bytes = 0;  ///< of the package's files
};

/// What a LibTorch is.
struct TorchFacts {
  std::string library;         ///< its file
  std::string version;         ///< as the library itself says
  std::string cpu_capability;  ///< of its kernels, in its own words: AVX2
};

/// What crosses between the program and libmillrace_torch.so. Both come from one build, so C++ objects and exceptions
/// may cross; the first three members tell whether they do, and never move.
struct TorchInterface {
  std::int32_t version;  ///< torch_interface_version
  const char* program;   ///< version of the program that it belongs to
  const char* torch;     ///< version of LibTorch that it was compiled for
  std::shared_ptr<Engine> (*load)(const TorchModel& model, const EngineOptions& options);
  TorchFacts (*facts)();
};

/// Raise it whenever TorchInterface, Engine, EngineOptions, Device, Stream, Tensor or an exception changes.
inline constexpr std::int32_t torch_interface_version = 2;

/// The plug-in's one function.
using TorchInterfaceFunction = const TorchInterface*();
inline constexpr const char* torch_interface_symbol = "millrace_torch";

}  // namespace millrace
