#pragma once

#include <memory>

#include "models/engines/torch_interface.hpp"

namespace millrace {

/// What load_torch_engine() asks the plug-in for. Throws ModelError.
std::shared_ptr<Engine> make_torch_engine(const TorchModel& model, const EngineOptions& options);

}  // namespace millrace
