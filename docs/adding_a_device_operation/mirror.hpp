#pragma once

#include <cstdint>

#include "base/tensor.hpp"
#include "gpu/device_code.hpp"

namespace millrace {

class Device;
class Stream;

/// Operation `mirror`: writes pictures [N, 3, H, W] to `to` with left and right exchanged. f32.
/// A caller can then ask a model a second time, with mirrored pictures.
/// Throws std::invalid_argument on other types, and on tensors of different shapes.
void mirror(Device& device, const Tensor& from, const Tensor& to);

/// Pointers to memory of the device.
struct MirrorJob {
  const float* from = nullptr;
  float* to = nullptr;
  std::int64_t rows = 0;  ///< of all planes of all pictures
  int width = 0;
};

/// What one thread does.
MILLRACE_DEVICE inline void mirror_value(const MirrorJob& job, std::int64_t row, int x) {
  job.to[row * job.width + x] = job.from[row * job.width + job.width - 1 - x];
}

/// Defined in mirror.cu.
void launch(const MirrorJob& job, Stream& stream);

}  // namespace millrace
