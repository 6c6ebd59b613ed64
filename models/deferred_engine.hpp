#pragma once

#include <memory>

#include "models/engine.hpp"

namespace millrace {

/// An engine of the host on a FakeStream: its calls are done in their turn, and until then outputs hold garbage. On the
/// host's own device it is the engine itself. What a call throws comes out of the device's wait().
class DeferredEngine final : public Engine {
 public:
  DeferredEngine(Package package, std::shared_ptr<Engine> engine)
      : package_(std::move(package)), engine_(std::move(engine)) {}

  using Engine::call;
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device& device) override;
  DType image_type() const override { return engine_->image_type(); }
  std::int64_t memory_bytes() const override { return engine_->memory_bytes(); }

 private:
  const Package package_;
  const std::shared_ptr<Engine> engine_;
};

}  // namespace millrace
