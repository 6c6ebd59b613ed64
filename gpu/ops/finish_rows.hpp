#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "gpu/device_code.hpp"
#include "gpu/ops/blend_windows.hpp"
#include "gpu/windows.hpp"

namespace millrace {

/// What turns blended values into probabilities.
enum class Activation { none, softmax, sigmoid };

/// How blended values become labels. With several classes and no threshold, the label is the class with the largest
/// value; of equal ones the first. Otherwise it is 1 + that class if its value exceeds the threshold, else 0.
struct LabelRule {
  Activation activation = Activation::softmax;
  bool thresholded = false;
  float threshold = 0;     ///< for blended values before the activation
  std::uint8_t empty = 0;  ///< label of places that no window touched
  bool activate = true;    ///< FinishedRows::values are probabilities; false: blended values
};

/// Rows that are complete. All pointers are to memory of the device.
struct FinishedRows {
  const BlendSums* sums = nullptr;
  Extent item, before;             ///< as in WindowGrid
  int first = 0, count = 0;        ///< rows of the padded item
  std::uint8_t* labels = nullptr;  ///< [row][line][column] of these rows that lie in the item
  float* values = nullptr;         ///< [row][line][column][class] of the same places; null: not wanted
  std::int32_t* faults = nullptr;  ///< gets the number of places with a value that is not finite added
};

/// Operation `finish_rows`: divides the sums by the weights, writes labels and values, and sets the sums to 0.
/// A place outside of the item has no label. A place with a value that is not finite has the label `empty`.
void finish_rows(Device& device, const LabelRule& rule, std::span<const FinishedRows> rows);

struct FinishTarget {
  BlendSums sums;
  Extent item, before;
  int first = 0, count = 0;
  std::uint8_t* labels = nullptr;
  float* values = nullptr;
  std::int32_t* faults = nullptr;
  /// The first of these rows that lies in the item, as a row of the item.
  MILLRACE_DEVICE int first_in_item() const { return first < before.rows ? 0 : first - before.rows; }
};

struct FinishJob {
  const FinishTarget* targets = nullptr;
  int count = 0;                 ///< of targets
  std::int64_t most_places = 0;  ///< of a target's rows
  std::int64_t places = 0;       ///< of all targets
  LabelRule rule;
};

namespace finish_kernel {

/// The value of class k at a place whose sums begin at `sums`.
MILLRACE_DEVICE inline float mean(const float* sums, int k, int classes, std::int64_t plane) {
  return sums[k * plane] / sums[classes * plane];
}

MILLRACE_DEVICE inline void write_values(const float* sums, const FinishTarget& target, const LabelRule& rule,
                                         float largest, float* values) {
  const int classes = target.sums.classes;
  const std::int64_t plane = target.sums.plane();
  const bool blended = sums[classes * plane] > 0;
  float total = 0;
  for (int k = 0; k < classes; ++k) {
    float value = blended ? mean(sums, k, classes, plane) : 0;
    if (blended && rule.activate) {
      if (rule.activation == Activation::sigmoid) value = 1 / (1 + std::exp(-value));
      if (rule.activation == Activation::softmax) total += value = std::exp(value - largest);
    }
    values[k] = value;
  }
  if (!blended || !rule.activate || rule.activation != Activation::softmax) return;
  for (int k = 0; k < classes; ++k) values[k] /= total;
}

}  // namespace finish_kernel

/// Finishes place `i` of the target's rows. Returns whether it has a value that is not finite.
MILLRACE_DEVICE inline bool finish_place(const FinishJob& job, const FinishTarget& target, std::int64_t i) {
  const int classes = target.sums.classes;
  const std::int64_t plane = target.sums.plane();
  const Extent& size = target.sums.size;
  const int column = static_cast<int>(i % size.columns), line = static_cast<int>(i / size.columns % size.lines);
  const int row = target.first + static_cast<int>(i / plane);
  float* const sums = target.sums.sums + static_cast<std::int64_t>(row % size.rows) * (classes + 1) * plane + i % plane;
  const int r = row - target.before.rows, l = line - target.before.lines, c = column - target.before.columns;
  bool fault = false;
  if (r >= 0 && l >= 0 && c >= 0 && r < target.item.rows && l < target.item.lines && c < target.item.columns) {
    const std::int64_t at =
        (static_cast<std::int64_t>(r - target.first_in_item()) * target.item.lines + l) * target.item.columns + c;
    std::uint8_t label = job.rule.empty;
    float largest = 0;
    if (sums[classes * plane] > 0) {
      int best = 0;
      largest = finish_kernel::mean(sums, 0, classes, plane);
      fault = !(std::fabs(largest) <= 3.4028235e38F);
      for (int k = 1; k < classes; ++k) {
        const float value = finish_kernel::mean(sums, k, classes, plane);
        fault = fault || !(std::fabs(value) <= 3.4028235e38F);
        if (value > largest) {
          largest = value;
          best = k;
        }
      }
      if (!fault && !job.rule.thresholded) label = static_cast<std::uint8_t>(best);
      if (!fault && job.rule.thresholded)
        label = static_cast<std::uint8_t>(largest > job.rule.threshold ? best + 1 : 0);
    }
    target.labels[at] = label;
    if (target.values != nullptr)
      finish_kernel::write_values(sums, target, job.rule, largest, target.values + at * classes);
  }
  for (int k = 0; k <= classes; ++k) sums[k * plane] = 0;
  return fault;
}

namespace finish_kernel {

/// What the kernel does, on the host: one thread after another.
inline void finish_all(const FinishJob& job) {
  for (int t = 0; t < job.count; ++t) {
    const FinishTarget& target = job.targets[t];
    for (std::int64_t i = 0; i < target.count * target.sums.plane(); ++i)
      *target.faults += finish_place(job, target, i) ? 1 : 0;
  }
}

}  // namespace finish_kernel

/// Defined in finish_rows.cu.
void launch(const FinishJob& job, Stream& stream);

}  // namespace millrace
