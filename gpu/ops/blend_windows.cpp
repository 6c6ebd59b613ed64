#include "gpu/ops/blend_windows.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "gpu/clones.hpp"
#include "gpu/device.hpp"

namespace millrace {
namespace {

void body(const BlendJob& job) { blend_kernel::blend_all(job); }

/// Adds weight x value for `lines` neighbours of a window's lines, which lie `step` values apart in the sums.
/// `values` is null for the sum of the weights.
MILLRACE_CLONES void add_lines(const float* weights, const float* values, int lines, int columns, float* sums,
                               std::int64_t step) {
  for (int line = 0; line < lines; ++line, weights += columns, sums += step) {
    if (values == nullptr) {
      for (int i = 0; i < columns; ++i) sums[i] += weights[i];
    } else {
      for (int i = 0; i < columns; ++i) sums[i] += weights[i] * values[i];
      values += columns;
    }
  }
}

// So many lines of all rows fit the second-level cache, until they are added.
constexpr int turned_lines = 8;

/// The sums of one class where a window lies.
struct ClassSums {
  const BlendJob& job;
  const BlendSums& sums;
  Extent start;  ///< of the window
  int k = 0;     ///< class; the number of classes means the weights themselves

  /// Adds lines [line, line + lines) of all rows. `values` is [rows][stride], whose first line is `line`; or null.
  void add(int line, int lines, const float* values, std::int64_t stride) const {
    const Extent& roi = job.roi;
    for (int row = 0; row < roi.rows; ++row) {
      const std::int64_t slot = (start.rows + row) % sums.size.rows;
      add_lines(job.weights + (std::int64_t{row} * roi.lines + line) * roi.columns,
                values == nullptr ? nullptr : values + row * stride, lines, roi.columns,
                sums.sums + (slot * (sums.classes + 1) + k) * sums.plane() +
                    std::int64_t{start.lines + line} * sums.size.columns + start.columns,
                sums.size.columns);
    }
  }
};

// Window after window: each touches only its own part of the sums.
void on_host(const BlendJob& job) {
  const Extent& roi = job.roi;
  const bool turned = job.order == columns_first;
  std::vector<float> here(
      turned ? static_cast<std::size_t>(roi.rows) * turned_lines * static_cast<std::size_t>(roi.columns) : 0);
  std::vector<float> mirrored, reordered;
  for (int t = 0; t < job.count; ++t) {
    const BlendTarget& target = job.targets[t];
    for (int w = target.first; w < target.first + target.count; ++w) {
      const PlacedOutput& window = job.windows[w];
      const float* outputs = job.outputs + std::int64_t{window.row} * job.classes * roi.values();
      ClassSums sums{job, target.sums, window.start};
      for (; sums.k < job.classes; ++sums.k, outputs += roi.values()) {
        const float* values = outputs;
        if (window.mirror.any()) {
          mirrored.resize(static_cast<std::size_t>(roi.values()));
          mirror_window(roi, job.order, window.mirror, outputs, mirrored.data());
          values = mirrored.data();
        }
        if (!turned && job.order != rows_first) {
          reordered.resize(static_cast<std::size_t>(roi.values()));
          reorder_window(roi, job.order, rows_first, values, reordered.data());
          values = reordered.data();
        }
        if (!turned) sums.add(0, roi.lines, values, std::int64_t{roi.lines} * roi.columns);
        for (int line = 0; turned && line < roi.lines; line += turned_lines) {
          const int count = std::min(turned_lines, roi.lines - line);
          exchange_outer_axes(roi.columns, roi.lines, roi.rows, line, count, values, here.data());
          sums.add(line, count, here.data(), std::int64_t{count} * roi.columns);
        }
      }
      sums.add(0, roi.lines, nullptr, 0);
    }
  }
}

double megavalues(const BlendJob& job) {
  return static_cast<double>(job.roi.values()) * job.classes * job.outputs_blended / 1e6;
}

constexpr Operation<BlendJob> operation{.name = "blend_windows", .host = on_host, .body = body, .units = megavalues};

}  // namespace

void blend_windows(Device& device, const Tensor& outputs, const Extent& roi, const WindowOrder& order,
                   const float* weights, std::span<const BlendWindow> windows) {
  if (outputs.dtype != DType::f32 || outputs.shape.size() < 2 ||
      outputs.elements() != outputs.shape[0] * outputs.shape[1] * roi.values())
    throw std::invalid_argument("blend_windows: takes outputs [windows, classes, ...] of f32");
  if (windows.empty()) return;
  BlendJob job;
  job.outputs = static_cast<const float*>(outputs.data);
  job.weights = weights;
  job.roi = roi;
  job.order = order;
  job.classes = static_cast<int>(outputs.shape[1]);
  job.outputs_blended = static_cast<int>(windows.size());
  std::vector<BlendTarget> targets;
  std::vector<PlacedOutput> placed;
  const BlendSums* last = nullptr;
  for (const BlendWindow& window : windows) {
    const BlendSums& sums = *window.sums;
    if (sums.classes != job.classes || sums.size.rows != roi.rows || window.row < 0 || window.row >= outputs.shape[0] ||
        window.start.lines + roi.lines > sums.size.lines || window.start.columns + roi.columns > sums.size.columns)
      throw std::invalid_argument("blend_windows: a window does not fit its sums or its outputs");
    if (window.sums != last) targets.push_back({sums, static_cast<int>(placed.size()), 0});
    last = window.sums;
    ++targets.back().count;
    job.most_values = std::max(job.most_values, sums.values());
    placed.push_back({window.row, window.start, window.mirror});
  }
  job.count = static_cast<int>(targets.size());
  if (device.on_host()) {
    job.targets = targets.data();
    job.windows = placed.data();
  } else {
    job.targets = device.store(std::span<const BlendTarget>(targets));
    job.windows = device.store(std::span<const PlacedOutput>(placed));
  }
  device.run(operation, job);
}

}  // namespace millrace
