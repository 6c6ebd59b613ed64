#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/engine.hpp"
#include "models/variant.hpp"

namespace millrace {

/// The parts of a package that libmillrace_torch.so needs.
struct TorchModel {
  std::filesystem::path file;  ///< TorchScript
  std::string folder;          ///< of the package, for messages during loading
  std::string name;            ///< of the package, for messages of calls
  std::vector<Method> methods;
  std::int64_t bytes = 0;                    ///< loaded_bytes()
  std::shared_ptr<const Variant> variant{};  ///< compiled calls, or null
};

/// Facts about the loaded LibTorch.
struct TorchFacts {
  std::string library;         ///< path of its file
  std::string version;         ///< as the library reports it
  std::string cpu_capability;  ///< of its kernels, as the library reports it: AVX2
};

/// The interface between the program and libmillrace_torch.so.
/// Both must come from one build, so that C++ objects and exceptions can cross it.
/// The program checks that with the first three members, so they never move.
struct TorchInterface {
  std::int32_t version;  ///< torch_interface_version
  const char* program;   ///< version of the program that the plug-in belongs to
  const char* torch;     ///< version of LibTorch that the plug-in was compiled for
  std::shared_ptr<Engine> (*load)(const TorchModel& model, const EngineOptions& options);
  TorchFacts (*facts)();
  /// Opens a library of a variant. Returns the reason if that fails, else an empty text.
  std::string (*open_library)(const std::filesystem::path& file);
};

/// Raise it when TorchInterface, Engine, EngineOptions, Device, Stream, Tensor or an exception class changes.
inline constexpr std::int32_t torch_interface_version = 5;

/// The only function that the plug-in exports.
using TorchInterfaceFunction = const TorchInterface*();
inline constexpr const char* torch_interface_symbol = "millrace_torch";

}  // namespace millrace
