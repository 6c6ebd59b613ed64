#pragma once

#include <memory>

#include "models/engines/torch_interface.hpp"

namespace millrace {

/// The plug-in's part of load_torch_engine(). Throws ModelError, or DeviceError if the device is lost.
std::shared_ptr<Engine> make_torch_engine(const TorchModel& model, const EngineOptions& options);

}  // namespace millrace
