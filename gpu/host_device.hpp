#pragma once

#include <optional>

#include "gpu/device.hpp"

namespace millrace {

/// The CPU: everything is done when it is asked for.
class HostDevice final : public Device {
 public:
  Tensor empty(std::vector<std::int64_t> shape, DType dtype) override { return Tensor::empty(std::move(shape), dtype); }
  void zero(const Tensor& tensor) override;
  void copy(const Tensor& from, const Tensor& to) override;
  Image8 upload(const Image8& raster, std::shared_ptr<const void> /*keep*/) override { return raster; }
  void letterbox(const Image8& raster, const LetterboxGeometry& geometry, const InputSpec& spec,
                 const Tensor& input) override;
  void find_boxes(const Tensor& output, const BoxSearch& search, std::span<const BoxTarget> targets) override;
  Prompts prompts(std::span<const Box> boxes, std::span<const int> image_index) override;
  void trace(std::span<const MaskCall> calls, float threshold) override;
  void wait() override {}

 private:
  void trace_one(const MaskCall& call, const MaskTarget& target, float threshold);

  std::optional<MaskTracer> tracer_;  // for the geometry that it was asked for last
};

}  // namespace millrace
