#pragma once

#include <memory>

#include "models/engine.hpp"
#include "models/engines/torch_interface.hpp"

namespace millrace {

/// Loads the package's TorchScript with LibTorch, which is opened by the first call of the process: it and its
/// libraries take a third of a second, and read their environment only then. The first engine also fixes LibTorch's
/// settings: one thread for parallel branches of a graph, and no specialisation of graphs at run time.
/// Throws ModelError; PluginError where libmillrace_torch.so or LibTorch cannot be used.
std::shared_ptr<Engine> load_torch_engine(const Package& package, const EngineOptions& options);

/// Opens LibTorch and says what it is; for `millrace doctor`. Throws PluginError.
TorchFacts torch_facts();

}  // namespace millrace
