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
      {"runs models", "run 'make install' again, which also brings LibTorch, or put LibTorch back to where it was"});
  const TorchInterface* plugin = reinterpret_cast<TorchInterfaceFunction*>(symbol)();
  if (plugin->version != torch_interface_version || std::string_view(plugin->program) != MILLRACE_VERSION) {
    throw PluginError(fmt::format(
        "'{}' belongs to millrace {} (interface {}), and this program is millrace {} (interface {}); run "
        "'make install' again, so that both come from one build",
        find_plugin(plugin_name), plugin->program, plugin->version, MILLRACE_VERSION, torch_interface_version));
  }
  const TorchFacts found = plugin->facts();
  if (found.version != plugin->torch) {
    throw PluginError(
        fmt::format("'{}' was built for LibTorch {} and found LibTorch {} in '{}'; run 'make install' again, or "
                    "take the other one out of LD_LIBRARY_PATH",
                    find_plugin(plugin_name), plugin->torch, found.version, found.library));
  }
  return *plugin;
}

#else

const TorchInterface& open_torch() {
  throw PluginError("this program was built without LibTorch, so it runs no models; build it with MILLRACE_TORCH=ON");
}

#endif

// Found once: a plug-in that is replaced while a run goes on must not cost pictures whose model comes back.
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
                       .bytes = package.file_bytes()},
                      options);
}

TorchFacts torch_facts() { return torch().facts(); }

}  // namespace millrace
