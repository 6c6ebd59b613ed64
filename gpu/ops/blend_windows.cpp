#include "gpu/ops/blend_windows.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "gpu/clones.hpp"
#include "gpu/device.hpp"

namespace millrace {
namespace {

void body(const BlendJob& job) { blend_kernel::blend_all(job); }

MILLRACE_CLONES void add_products(const float* weights, const float* values, int count, float* sums) {
  for (int i = 0; i < count; ++i) sums[i] += weights[i] * values[i];
}

MILLRACE_CLONES void add(const float* weights, int count, float* sums) {
  for (int i = 0; i < count; ++i) sums[i] += weights[i];
}

/// The sums of one class and window with rows first. `values` is null for the sum of the weights.
void add_plane(const BlendTarget& target, const Extent& roi, const Extent& start, int k, const float* weights,
               const float* values) {
  const BlendSums& sums = target.sums;
  for (int row = 0; row < roi.rows; ++row) {
    const std::int64_t slot = (start.rows + row) % sums.size.rows;
    for (int line = 0; line < roi.lines; ++line, weights += roi.columns) {
      float* const to = sums.sums + (slot * (sums.classes + 1) + k) * sums.plane() +
                        std::int64_t{start.lines + line} * sums.size.columns + start.columns;
      if (values == nullptr) {
        add(weights, roi.columns, to);
      } else {
        add_products(weights, values, roi.columns, to);
        values += roi.columns;
      }
    }
  }
}

// Window after window: each touches only its own part of the sums.
void on_host(const BlendJob& job) {
  const Extent& roi = job.roi;
  const bool turned = job.order == WindowOrder::columns_first;
  std::vector<float> plane(turned ? static_cast<std::size_t>(roi.values()) : 0);
  for (int t = 0; t < job.count; ++t) {
    const BlendTarget& target = job.targets[t];
    for (int w = target.first; w < target.first + target.count; ++w) {
      const PlacedOutput& window = job.windows[w];
      const float* outputs = job.outputs + std::int64_t{window.row} * job.classes * roi.values();
      for (int k = 0; k < job.classes; ++k, outputs += roi.values()) {
        if (turned) exchange_outer_axes(roi.columns, roi.lines, roi.rows, outputs, plane.data());
        add_plane(target, roi, window.start, k, job.weights, turned ? plane.data() : outputs);
      }
      add_plane(target, roi, window.start, job.classes, job.weights, nullptr);
    }
  }
}

double megavalues(const BlendJob& job) {
  return static_cast<double>(job.roi.values()) * job.classes * job.outputs_blended / 1e6;
}

constexpr Operation<BlendJob> operation{.name = "blend_windows", .host = on_host, .body = body, .units = megavalues};

}  // namespace

void blend_windows(Device& device, const Tensor& outputs, const Extent& roi, WindowOrder order, const float* weights,
                   std::span<const BlendWindow> windows) {
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
    placed.push_back({window.row, window.start});
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
