#include "models/engines/torch_plugin.hpp"

#include <fmt/format.h>

#include "base/plugin.hpp"

namespace millrace {
namespace {

#ifdef MILLRACE_TORCH

constexpr const char* plugin_name = "libmillrace_torch.so";

const TorchInterface& open_torch() {
  void* symbol = open_plugin(
      plugin_name, torch_interface_symbol,
      {"runs models", "run 'make install' again, which also installs LibTorch, or put LibTorch back into its folder"});
  const TorchInterface* plugin = reinterpret_cast<TorchInterfaceFunction*>(symbol)();
  // Before any other use, because only the first three members have the same place in all versions.
  if (plugin->version != torch_interface_version || std::string_view(plugin->program) != MILLRACE_VERSION) {
    throw PluginError(fmt::format(
        "'{}' belongs to millrace {} (interface {}), and this program is millrace {} (interface {}); run "
        "'make install' again, so that both come from one build",
        find_plugin(plugin_name), plugin->program, plugin->version, MILLRACE_VERSION, torch_interface_version));
  }
  // The loader may have found another LibTorch, for example by LD_LIBRARY_PATH.
  const TorchFacts found = plugin->facts();
  if (found.version != plugin->torch) {
    throw PluginError(
        fmt::format("'{}' was built for LibTorch {} but found LibTorch {} in '{}'; run 'make install' again, or "
                    "remove the other one from LD_LIBRARY_PATH",
                    find_plugin(plugin_name), plugin->torch, found.version, found.library));
  }
  return *plugin;
}

#else

const TorchInterface& open_torch() {
  throw PluginError(
      "this program was built without LibTorch, so it cannot run models; build it with MILLRACE_TORCH=ON");
}

#endif

// Opened once per process. If someone replaces the plug-in's file during a run, later loads of models still work.
const TorchInterface& torch() {
  static const TorchInterface& opened = open_torch();
  return opened;
}

}  // namespace

std::shared_ptr<Engine> load_torch_engine(const Package& package, const EngineOptions& options) {
  return torch().load({.file = package.torchscript(),
                       .folder = package.folder.string(),
                       .name = package.name,
                       .methods = package.methods,
                       .bytes = loaded_bytes(package),
                       .variant = package.variant},
                      options);
}

std::string open_variant(const Variant& variant) {
  if (const std::string version = torch().torch; variant.torch != version)
    return fmt::format("it was compiled for LibTorch {}, and this program has {}", variant.torch, version);
  for (const auto& [name, calls] : variant.methods) {
    for (const CompiledCall& call : calls) {
      if (std::string reason = torch().open_library(call.library); !reason.empty()) return reason;
    }
  }
  return {};
}

TorchFacts torch_facts() { return torch().facts(); }

}  // namespace millrace
