#pragma once

#include <memory>
#include <utility>

#include "models/engines/wrapped_engine.hpp"

namespace millrace {

/// An engine of the host on a FakeStream: its calls are done in their turn, and until then outputs hold garbage. On the
/// host's own device it is the engine itself. What a call throws comes out of the device's wait().
class DeferredEngine final : public WrappedEngine {
 public:
  DeferredEngine(Package package, std::shared_ptr<Engine> engine)
      : WrappedEngine(std::move(engine)), package_(std::move(package)) {}

  using Engine::call;
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device& device) override;

 private:
  const Package package_;
};

}  // namespace millrace
