#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/tensor.hpp"
#include "gpu/device_code.hpp"
#include "gpu/outline.hpp"

namespace millrace {

class Device;
class Stream;

/// A mask at full size: COCO runs down the columns, zeros first.
struct OutlinedMask {
  std::vector<std::uint32_t> counts;
  float predicted_iou = 0;
  std::string fault;  ///< not empty: logits or predicted IoU are not finite, so there is no mask
};

/// Row `row` of a decoder's output, the geometry of its picture, and the destination of the mask.
struct MaskTarget {
  int row = 0;
  MaskGeometry geometry;
  std::shared_ptr<OutlinedMask> mask;
};

/// Outputs of one decoder call: logits f32 [N, h, w] and predicted IoU f32 [N].
struct MaskCall {
  Tensor logits, predicted_iou;
  std::vector<MaskTarget> targets;
};

/// Operation `outline`: computes the masks of decoder outputs. They are filled after the wait.
/// All masks come down in one copy, whose size is estimated from earlier masks.
/// If that is too small, a second copy and wait follow. Throws like check_geometry().
void outline(Device& device, std::span<const MaskCall> calls, float threshold);

/// The masks of one decoder call. Pointers are to device memory.
///
/// A mask is stored as the positions where its value changes, in COCO's order down the columns:
/// position = x * picture_height + y. The first run is outside the mask.
/// A thread handles one column of the picture twice. First it counts changes; after a sum over all counts it writes.
struct OutlineJob {
  /// Inputs of the CPU, which needs none of the fields below. `outliner` keeps the object of the last geometry.
  struct Request {
    const MaskCall* call = nullptr;
    std::optional<MaskOutliner>* outliner = nullptr;
  } request;

  const float* logits = nullptr;           ///< [N, logits_height, logits_width]
  const float* predicted_iou = nullptr;    ///< [N]
  const std::int32_t* slots = nullptr;     ///< [N], index into geometry; -1: this mask is not needed
  const MaskGeometry* geometry = nullptr;  ///< by slot
  int masks = 0;                           ///< N
  int logits_width = 0, logits_height = 0;
  int widest = 0;  ///< width of the widest picture
  float threshold = 0;
  bool counted = false;             ///< counts and `largest` are valid: run only the last step, with another capacity
  std::uint32_t* counts = nullptr;  ///< [N * widest + 1] scratch: changes of each column, then of all columns before it
  // Outputs, one after another in memory:
  std::uint32_t* starts = nullptr;     ///< [N + 1]: index of each mask's first position; the last is the total
  float* iou = nullptr;                ///< [N]: predicted_iou
  float* largest = nullptr;            ///< [N]: largest magnitude of the logits, NaN or infinity if there is one
  std::uint32_t* positions = nullptr;  ///< [capacity]; positions beyond it are not written
  std::uint32_t capacity = 0;
};

/// Queues the kernels (outline.cu).
void launch(const OutlineJob& job, Stream& stream);

namespace outline_kernel {

// Combined by "or": a block is near unless all of it is inside or all outside.
constexpr unsigned char inside = 1, outside = 2, near = 3;

/// One column of a picture through both resizings, with the values of MaskOutliner.
class Column {
 public:
  MILLRACE_DEVICE Column(const float* logits, const MaskGeometry& g, int x, float largest, float threshold)
      : logits_(logits), g_(g), threshold_(threshold) {
    outer_ = bilinear_tap(g.crop_width, g.picture_width, x);
    middle0_ = bilinear_tap(g.logits_width, g.input_width, outer_.index0);
    middle1_ = bilinear_tap(g.logits_width, g.input_width, outer_.index1);
    // The margin of MaskOutliner::classify().
    const float margin =
        std::ldexp(largest > std::fabs(threshold) ? largest : std::fabs(threshold), -18) + 1.17549435e-38F;
    upper_ = threshold + margin;
    lower_ = threshold - margin;
  }

  /// Whether the pixel in row y is in the mask.
  MILLRACE_DEVICE bool value(int y) const {
    const BilinearTap tap = bilinear_tap(g_.crop_height, g_.picture_height, y);
    return std::fma(tap.weight0, crop_row(tap.index0), tap.weight1 * crop_row(tap.index1)) > threshold_;
  }

  /// Calls change(y) for each row of the column whose value differs from the row before.
  /// `before` is the value before row 0.
  template <class Change>
  MILLRACE_DEVICE void walk(bool before, const Change& change) const {
    int row = 0;
    const auto settle = [&](int end, bool now) {
      if (row < end && now != before) change(row), before = now;
      row = end > row ? end : row;
    };
    const auto compute = [&](int end) {
      int kept0 = -1, kept1 = -1;  // crop rows whose values are computed
      float value0 = 0, value1 = 0;
      for (; row < end; ++row) {
        const BilinearTap tap = bilinear_tap(g_.crop_height, g_.picture_height, row);
        if (tap.index0 != kept0) value0 = tap.index0 == kept1 ? value1 : crop_row(tap.index0);
        if (tap.index1 != kept1) value1 = tap.index1 == tap.index0 ? value0 : crop_row(tap.index1);
        kept0 = tap.index0;
        kept1 = tap.index1;
        const bool now = std::fma(tap.weight0, value0, tap.weight1 * value1) > threshold_;
        if (now != before) change(row), before = now;
      }
    };
    for (int y = 0; y < g_.logits_height;) {
      const unsigned char side = side_of_row(y);
      int y_end = y + 1;
      while (y_end < g_.logits_height && side_of_row(y_end) == side) ++y_end;
      if (side != near) {
        const int from = first_row_from(y), begin = from > row ? from : row, end = row_end_until(y_end - 1);
        if (begin < end) {
          compute(begin);
          settle(end, side == inside);
        }
      }
      y = y_end;
    }
    compute(g_.picture_height);
  }

 private:
  MILLRACE_DEVICE float logit(int x, int y) const {
    return logits_[static_cast<std::int64_t>(y) * g_.logits_width + x];
  }

  /// Returns a row of the logits at one column of the input.
  MILLRACE_DEVICE float across(const BilinearTap& tap, int y) const {
    return std::fma(tap.weight0, logit(tap.index0, y), tap.weight1 * logit(tap.index1, y));
  }
  MILLRACE_DEVICE float input_value(const BilinearTap& column, int input_y) const {
    const BilinearTap tap = bilinear_tap(g_.logits_height, g_.input_height, input_y);
    return std::fma(tap.weight0, across(column, tap.index0), tap.weight1 * across(column, tap.index1));
  }
  /// Returns a row of the cropped input at this picture column.
  MILLRACE_DEVICE float crop_row(int input_y) const {
    return std::fma(outer_.weight0, input_value(middle0_, input_y), outer_.weight1 * input_value(middle1_, input_y));
  }

  MILLRACE_DEVICE unsigned char side_of(float value) const {
    return value > upper_ ? inside : value < lower_ ? outside : near;
  }
  MILLRACE_DEVICE unsigned char side_of_row(int y) const {
    unsigned char side = 0;
    for (int x = middle0_.index0; x <= middle1_.index1; ++x)
      side = static_cast<unsigned char>(side | side_of(logit(x, y)));
    return side;
  }

  /// Returns the first and last logit row that a picture row depends on.
  MILLRACE_DEVICE int low(int row) const {
    return bilinear_tap(g_.logits_height, g_.input_height, bilinear_tap(g_.crop_height, g_.picture_height, row).index0)
        .index0;
  }
  MILLRACE_DEVICE int high(int row) const {
    return bilinear_tap(g_.logits_height, g_.input_height, bilinear_tap(g_.crop_height, g_.picture_height, row).index1)
        .index1;
  }
  /// Returns the first picture row that needs no logit row before y.
  MILLRACE_DEVICE int first_row_from(int y) const {
    int begin = 0, end = g_.picture_height;
    while (begin < end) {
      const int middle = (begin + end) / 2;
      if (low(middle) < y)
        begin = middle + 1;
      else
        end = middle;
    }
    return begin;
  }
  /// Returns the end of the picture rows that need no logit row after y.
  MILLRACE_DEVICE int row_end_until(int y) const {
    int begin = 0, end = g_.picture_height;
    while (begin < end) {
      const int middle = (begin + end) / 2;
      if (high(middle) <= y)
        begin = middle + 1;
      else
        end = middle;
    }
    return begin;
  }

  const float* logits_;
  const MaskGeometry& g_;
  float threshold_, upper_, lower_;
  BilinearTap outer_, middle0_, middle1_;
};

/// Calls change(position) for each change in column x of mask n.
template <class Change>
MILLRACE_DEVICE void walk(const OutlineJob& job, int n, int x, const Change& change) {
  const std::int32_t slot = job.slots[n];
  if (slot < 0) return;
  const MaskGeometry& g = job.geometry[slot];
  const float* logits = job.logits + static_cast<std::int64_t>(n) * job.logits_width * job.logits_height;
  const float largest = job.largest[n];
  if (x >= g.picture_width || !(largest * 0 == 0)) return;
  const bool before = x > 0 && Column(logits, g, x - 1, largest, job.threshold).value(g.picture_height - 1);
  Column(logits, g, x, largest, job.threshold).walk(before, [&](int y) {
    change(static_cast<std::uint32_t>(x) * static_cast<std::uint32_t>(g.picture_height) +
           static_cast<std::uint32_t>(y));
  });
}

/// First step, for each mask and column: counts changes. A sum over all counts follows.
MILLRACE_DEVICE inline void count_column(const OutlineJob& job, int n, int x) {
  std::uint32_t count = 0;
  walk(job, n, x, [&](std::uint32_t) { ++count; });
  job.counts[static_cast<std::int64_t>(n) * job.widest + x] = count;
  if (n == job.masks - 1 && x == job.widest - 1) job.counts[static_cast<std::int64_t>(job.masks) * job.widest] = 0;
}

/// Last step, for each mask and column: writes positions.
MILLRACE_DEVICE inline void write_column(const OutlineJob& job, int n, int x) {
  const std::uint32_t* own = job.counts + static_cast<std::int64_t>(n) * job.widest + x;
  if (x == 0) {
    job.starts[n] = *own;
    job.iou[n] = job.predicted_iou[n];
    if (n == job.masks - 1) job.starts[job.masks] = job.counts[static_cast<std::int64_t>(job.masks) * job.widest];
  }
  std::uint32_t at = own[0];
  if (at == own[1]) return;  // no changes in this column
  walk(job, n, x, [&](std::uint32_t position) {
    if (at < job.capacity) job.positions[at] = position;
    ++at;
  });
}

// What the kernels do for all masks, on the host: one thread after another.

/// The largest magnitude of the logits of mask n; NaN if there is one.
inline float largest_magnitude(const OutlineJob& job, int n) {
  const std::int64_t size = static_cast<std::int64_t>(job.logits_width) * job.logits_height;
  const float* logits = job.logits + n * size;
  float largest = 0;
  for (std::int64_t i = 0; i < size && !std::isnan(largest); ++i) {
    if (std::isnan(logits[i]) || std::fabs(logits[i]) > largest) largest = std::fabs(logits[i]);
  }
  return largest;
}

template <class Column>
void for_each_column(const OutlineJob& job, const Column& column) {
  for (int n = 0; n < job.masks; ++n) {
    for (int x = 0; x < job.widest; ++x) column(job, n, x);
  }
}

}  // namespace outline_kernel
}  // namespace millrace
