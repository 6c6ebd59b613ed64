#pragma once

#include <memory>

#include "models/engine.hpp"

namespace millrace {

/// Loads the package's TorchScript with LibTorch. The first engine of the process also fixes LibTorch's settings: one
/// thread for parallel branches of a graph, and no specialisation of graphs at run time. Throws ModelError.
std::shared_ptr<Engine> load_torch_engine(const Package& package, const EngineOptions& options);

}  // namespace millrace
