#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "models/engines/wrapped_engine.hpp"

namespace millrace {

/// An engine that says that its calls are cut and padded to `row_counts`, as those of a variant are.
class VariantLike final : public WrappedEngine {
 public:
  VariantLike(std::shared_ptr<Engine> engine, std::vector<int> row_counts)
      : WrappedEngine(std::move(engine)), row_counts_(std::move(row_counts)) {}

  using Engine::call;
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device& device) override {
    return engine_->call(method, inputs, device);
  }
  std::vector<int> row_counts(std::string_view /*method*/) const override { return row_counts_; }

 private:
  const std::vector<int> row_counts_;
};

}  // namespace millrace
