#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "models/engine.hpp"

namespace millrace {

/// Base of engines that add something to call() of another engine. All other functions forward to it.
class WrappedEngine : public Engine {
 public:
  explicit WrappedEngine(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

  using Engine::call;
  std::vector<int> row_counts(std::string_view method) const override { return engine_->row_counts(method); }
  DType image_type() const override { return engine_->image_type(); }
  std::int64_t memory_bytes() const override { return engine_->memory_bytes(); }
  void trim() override { engine_->trim(); }
  TorchMemory torch_memory() const override { return engine_->torch_memory(); }

 protected:
  const std::shared_ptr<Engine> engine_;
};

/// Rows of a call with these inputs.
inline int rows_of_call(const Package& package, std::string_view method, std::span<const Tensor> inputs) {
  const Method& called = package.method(method);
  return static_cast<int>(called.rows(called.call_of(inputs)));
}

}  // namespace millrace
