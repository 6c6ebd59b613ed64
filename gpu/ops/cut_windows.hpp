#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "base/half.hpp"
#include "base/hole.hpp"
#include "base/tensor.hpp"
#include "gpu/device_code.hpp"
#include "gpu/windows.hpp"

namespace millrace {

class Device;
class Stream;

/// A value of a plane is first limited to [low, high]. Then v becomes (v * scale - mean) / std. NaN stays NaN.
struct PlaneScaling {
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
  float scale = 1, mean = 0, std = 1;
  bool zero_stays = false;  ///< a value that is 0 after it was limited becomes 0
};

/// Values of a picture or volume in a device's memory: [row][line][column][channel], without gaps, u8 or f32.
/// The memory holds `ring` rows. Row r of the item is at r % ring, so it can hold the last rows of a large item.
struct WindowSource {
  const void* values = nullptr;
  DType type = DType::u8;
  int channels = 3;
  Extent item;                                       ///< size of the whole picture or volume
  Extent before;                                     ///< WindowGrid::before
  int ring = 1;                                      ///< at least the rows that windows of one call touch
  bool reversed = false;                             ///< plane 0 of the input is the last channel: BGR from RGB
  std::array<PlaneScaling, max_channels> scaling{};  ///< of each plane. Padding is 0 after it
  const Hole* holes = nullptr;                       ///< of a picture, in host memory: they are cut like padding
  int hole_count = 0;
};

struct CutWindow {
  const WindowSource* source = nullptr;  ///< null: a blank window of zeros
  Extent start;                          ///< WindowGrid::start
  Mirror mirror{};
};

/// Operation `cut_windows`: fills `inputs` [B, channels, ...] with windows of size `roi`, one for each of the B rows, in
/// the given order of a window's values.
/// Rows after the last window are zeros. The type of `inputs` is f32, f16 or bf16. All sources have as many channels as
/// `inputs`; if it has one, this is the first one of each source. Throws std::invalid_argument for other tensors.
void cut_windows(Device& device, std::span<const CutWindow> windows, const Extent& roi, const WindowOrder& order,
                 const Tensor& inputs);

/// A window, as the kernel sees it. `source` is its index, -1: zeros.
struct PlacedWindow {
  int source = -1;
  Extent start;
  Mirror mirror;
};

struct CutWindowsJob {
  const WindowSource* sources = nullptr;
  const PlacedWindow* windows = nullptr;
  int count = 0;  ///< of windows, blank ones included
  int channels = 0;
  Extent roi;
  WindowOrder order;
  DType type = DType::f32;
  void* inputs = nullptr;
};

/// What becomes of a value of a plane.
MILLRACE_DEVICE inline float scaled(float value, const PlaneScaling& by) {
  const float raised = by.low > value ? by.low : value, limited = by.high < raised ? by.high : raised;
  const float result = (limited * by.scale - by.mean) / by.std;
  const bool keeps_zero = by.zero_stays & (limited == 0);  // without a branch, so that the host's loop is vectorised
  return keeps_zero ? 0 : result;
}

/// The value of one place of a window, before it is rounded to the type of the input.
MILLRACE_DEVICE inline float window_value(const WindowSource& source, const Extent& start, int plane, int row, int line,
                                          int column) {
  const int r = start.rows + row - source.before.rows, l = start.lines + line - source.before.lines,
            c = start.columns + column - source.before.columns;
  const Extent& item = source.item;
  if (r < 0 || l < 0 || c < 0 || r >= item.rows || l >= item.lines || c >= item.columns) return 0;
  for (int i = 0; i < source.hole_count; ++i) {
    const Hole& hole = source.holes[i];
    if (r >= hole.first_row && r < hole.end_row && c >= hole.first_column && c < hole.end_column) return 0;
  }
  const int channel = source.reversed ? source.channels - 1 - plane : plane;
  const std::int64_t at =
      ((static_cast<std::int64_t>(r % source.ring) * item.lines + l) * item.columns + c) * source.channels + channel;
  const float value = source.type == DType::u8 ? static_cast<float>(static_cast<const std::uint8_t*>(source.values)[at])
                                               : static_cast<const float*>(source.values)[at];
  return scaled(value, source.scaling[static_cast<std::size_t>(plane)]);
}

namespace cut_windows_kernel {

/// What the kernel does, on the host: one thread after another.
inline void cut_all(const CutWindowsJob& job) {
  std::int64_t at = 0;
  for (int i = 0; i < job.count; ++i) {
    const PlacedWindow& window = job.windows[i];
    for (int plane = 0; plane < job.channels; ++plane) {
      for (std::int64_t place = 0; place < job.roi.values(); ++place, ++at) {
        float value = 0;
        if (window.source >= 0) {
          const Extent p = window.mirror.of(job.roi, place_at(job.roi, job.order, place));
          value = window_value(job.sources[window.source], window.start, plane, p.rows, p.lines, p.columns);
        }
        if (job.type == DType::f32) {
          static_cast<float*>(job.inputs)[at] = value;
        } else {
          static_cast<std::uint16_t*>(job.inputs)[at] = job.type == DType::f16 ? to_f16(value) : to_bf16(value);
        }
      }
    }
  }
}

}  // namespace cut_windows_kernel

/// Defined in cut_windows.cu.
void launch(const CutWindowsJob& job, Stream& stream);

}  // namespace millrace
