#pragma once

#include <memory>

#include "models/engine.hpp"
#include "models/engines/torch_interface.hpp"

namespace millrace {

/// Loads the package's TorchScript with LibTorch.
///
/// The first call of the process opens LibTorch. That takes a third of a second.
/// LibTorch and its libraries read their environment then, so set it before (threads.hpp).
/// The first engine also fixes settings of LibTorch for the process:
/// - one thread for parallel branches of a graph
/// - no specialisation of graphs at run time
///
/// Throws ModelError, or PluginError if libmillrace_torch.so or LibTorch cannot be used.
std::shared_ptr<Engine> load_torch_engine(const Package& package, const EngineOptions& options);

/// Opens the libraries of a variant. Returns the reason if LibTorch cannot use them, else an empty text.
/// Their hashes must have been checked (check_libraries()), because opening a library runs code of it.
std::string open_variant(const Variant& variant);

/// Opens LibTorch and returns its facts, for `millrace doctor`. Throws PluginError.
TorchFacts torch_facts();

}  // namespace millrace
