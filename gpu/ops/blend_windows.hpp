#pragma once

#include <cstdint>
#include <span>

#include "base/tensor.hpp"
#include "gpu/device_code.hpp"
#include "gpu/windows.hpp"

namespace millrace {

class Device;
class Stream;

/// Weighted sums of the outputs of windows for some rows of an item, in a device's memory.
/// It holds as many rows as a window has: row r of the padded item is at r % ring.
/// A row is [classes + 1][lines][columns]: the sums of each class, then the sum of the weights.
struct BlendSums {
  float* sums = nullptr;
  Extent size;  ///< rows: those of a window; lines and columns: those of the padded item
  int classes = 1;
  MILLRACE_DEVICE std::int64_t plane() const { return std::int64_t{size.lines} * size.columns; }
  MILLRACE_DEVICE std::int64_t values() const { return size.rows * (classes + 1) * plane(); }
};

/// The output of one window, and where it goes.
struct BlendWindow {
  const BlendSums* sums = nullptr;
  int row = 0;      ///< in the tensor of outputs
  Extent start;     ///< WindowGrid::start
  Mirror mirror{};  ///< of the window that the model saw; its output is mirrored back
};

/// Operation `blend_windows`: adds weight x output of each window to its sums, in the order of `windows`.
/// `outputs` is [B, classes, ...] of f32, with windows of size `roi` in this order of values.
/// `weights` are those of window_weights(), in the device's memory.
/// Windows of one BlendSums must be adjacent, and of one band.
/// Every sum is computed as float32 ((sum + w1 v1) + w2 v2) ..., so that it does not depend on the calls that bring the
/// windows. Throws std::invalid_argument for other tensors.
void blend_windows(Device& device, const Tensor& outputs, const Extent& roi, const WindowOrder& order,
                   const float* weights, std::span<const BlendWindow> windows);

/// The windows of one item in a call.
struct BlendTarget {
  BlendSums sums;
  int first = 0, count = 0;  ///< of its windows in BlendJob::windows
};

struct PlacedOutput {
  int row = 0;
  Extent start;
  Mirror mirror;
};

struct BlendJob {
  const float* outputs = nullptr;
  const float* weights = nullptr;
  Extent roi;
  WindowOrder order;
  int classes = 1;
  const BlendTarget* targets = nullptr;
  const PlacedOutput* windows = nullptr;
  int count = 0;                 ///< of targets
  std::int64_t most_values = 0;  ///< of the largest target's sums
  int outputs_blended = 0;       ///< windows of all targets
};

/// Adds the windows to value `i` of a target's sums.
MILLRACE_DEVICE inline void blend_value(const BlendJob& job, const BlendTarget& target, std::int64_t i) {
  const Extent& size = target.sums.size;
  const std::int64_t plane = target.sums.plane();
  const int column = static_cast<int>(i % size.columns), line = static_cast<int>(i / size.columns % size.lines);
  const int k = static_cast<int>(i / plane % (job.classes + 1)), slot = static_cast<int>(i / plane / (job.classes + 1));
  float sum = target.sums.sums[i];
  for (int w = target.first; w < target.first + target.count; ++w) {
    const PlacedOutput& window = job.windows[w];
    const int l = line - window.start.lines, c = column - window.start.columns;
    if (l < 0 || c < 0 || l >= job.roi.lines || c >= job.roi.columns) continue;
    // The row of the window that lies in this slot of the ring.
    const int r = (slot - window.start.rows % size.rows + size.rows) % size.rows;
    const std::int64_t at = place_of(job.roi, job.order, window.mirror.of(job.roi, {r, l, c}));
    // Rows first. Device code cannot use the constant of that name.
    const float weight = job.weights[place_of(job.roi, WindowOrder{}, {r, l, c})];
    const float value =
        k == job.classes
            ? 1.0F
            : job.outputs[(static_cast<std::int64_t>(window.row) * job.classes + k) * job.roi.values() + at];
    sum += weight * value;
  }
  target.sums.sums[i] = sum;
}

namespace blend_kernel {

/// What the kernel does, on the host: one thread after another.
inline void blend_all(const BlendJob& job) {
  for (int t = 0; t < job.count; ++t) {
    for (std::int64_t i = 0; i < job.targets[t].sums.values(); ++i) blend_value(job, job.targets[t], i);
  }
}

}  // namespace blend_kernel

/// Defined in blend_windows.cu.
void launch(const BlendJob& job, Stream& stream);

}  // namespace millrace
