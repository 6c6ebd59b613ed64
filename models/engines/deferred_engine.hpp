#pragma once

#include <memory>
#include <utility>

#include "models/engines/wrapped_engine.hpp"

namespace millrace {

/// Makes an engine of the host behave like one of a GPU, on a FakeStream. On the host's own device it only forwards.
/// The stream runs a call later, in its order; until then its outputs hold garbage.
/// Errors of a call are thrown by the device's wait(). The engine must live until then.
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
