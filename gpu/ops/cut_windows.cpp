#include "gpu/ops/cut_windows.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "gpu/clones.hpp"
#include "gpu/device.hpp"

namespace millrace {
namespace {

constexpr std::size_t max_windows = 65535;  // limit of a grid's third dimension

void body(const CutWindowsJob& job) { cut_windows_kernel::cut_all(job); }

/// `count` values of every `step`-th byte, by a table of all 256 results.
void look_up(const std::uint8_t* from, int step, const float* table, int count, float* to) {
  for (int i = 0; i < count; ++i) to[i] = table[from[static_cast<std::ptrdiff_t>(i) * step]];
}

MILLRACE_CLONES void scale_all(const float* from, int step, const PlaneScaling& scaling, int count, float* to) {
  const PlaneScaling by = scaling;  // a copy, which writes to `to` cannot change, so that the loop is vectorised
  for (int i = 0; i < count; ++i) to[i] = scaled(from[static_cast<std::ptrdiff_t>(i) * step], by);
}

/// One plane of a window with rows first. Places outside of the item and in holes are zeros.
void cut_plane(const WindowSource& source, const Extent& start, const Extent& roi, int plane, float* to) {
  const PlaneScaling& scaling = source.scaling[static_cast<std::size_t>(plane)];
  const int channel = source.reversed ? source.channels - 1 - plane : plane;
  std::array<float, 256> table{};
  if (source.type == DType::u8) {
    std::array<float, 256> values{};
    std::iota(values.begin(), values.end(), 0.0F);
    scale_all(values.data(), 1, scaling, static_cast<int>(values.size()), table.data());
  }
  const Extent& item = source.item;
  const int first = start.columns - source.before.columns;
  // The columns of the window that lie in the item.
  const int begin = std::clamp(-first, 0, roi.columns), end = std::clamp(item.columns - first, begin, roi.columns);
  for (int row = 0; row < roi.rows; ++row) {
    for (int line = 0; line < roi.lines; ++line, to += roi.columns) {
      const int r = start.rows + row - source.before.rows, l = start.lines + line - source.before.lines;
      if (r < 0 || l < 0 || r >= item.rows || l >= item.lines) {
        std::fill_n(to, roi.columns, 0.0F);
        continue;
      }
      std::fill(to, to + begin, 0.0F);
      std::fill(to + end, to + roi.columns, 0.0F);
      const std::int64_t at =
          ((static_cast<std::int64_t>(r % source.ring) * item.lines + l) * item.columns + first + begin) *
              source.channels +
          channel;
      if (source.type == DType::u8) {
        look_up(static_cast<const std::uint8_t*>(source.values) + at, source.channels, table.data(), end - begin,
                to + begin);
      } else {
        scale_all(static_cast<const float*>(source.values) + at, source.channels, scaling, end - begin, to + begin);
      }
      for (const Hole& hole : std::span(source.holes, static_cast<std::size_t>(source.hole_count))) {
        if (r < hole.first_row || r >= hole.end_row) continue;
        const int left = std::clamp(hole.first_column - first, begin, end);
        std::fill(to + left, to + std::clamp(hole.end_column - first, left, end), 0.0F);
      }
    }
  }
}

void on_host(const CutWindowsJob& job) {
  const auto plane_values = static_cast<std::size_t>(job.roi.values());
  const bool turned = job.order != rows_first, wide = job.type != DType::f32;
  std::vector<float> plane_here(turned || wide ? plane_values : 0), turned_here(turned && wide ? plane_values : 0),
      mirrored_here;
  for (int i = 0; i < job.count; ++i) {
    const PlacedWindow& window = job.windows[i];
    for (int plane = 0; plane < job.channels; ++plane) {
      const std::size_t at =
          (static_cast<std::size_t>(i) * static_cast<std::size_t>(job.channels) + static_cast<std::size_t>(plane)) *
          plane_values;
      float* const last =
          wide ? (turned ? turned_here.data() : plane_here.data()) : static_cast<float*>(job.inputs) + at;
      float* const cut = turned ? plane_here.data() : last;
      if (window.source < 0) {
        std::fill_n(last, plane_values, 0.0F);
      } else {
        const WindowSource& source = job.sources[window.source];
        if (window.mirror.any()) {
          mirrored_here.resize(plane_values);
          cut_plane(source, window.start, job.roi, plane, mirrored_here.data());
          mirror_window(job.roi, rows_first, window.mirror, mirrored_here.data(), cut);
        } else {
          cut_plane(source, window.start, job.roi, plane, cut);
        }
        if (turned) reorder_window(job.roi, rows_first, job.order, cut, last);
      }
      if (!wide) continue;
      std::transform(last, last + plane_values, static_cast<std::uint16_t*>(job.inputs) + at,
                     job.type == DType::f16 ? to_f16 : to_bf16);
    }
  }
}

double megavalues(const CutWindowsJob& job) {
  return static_cast<double>(job.roi.values()) * job.channels * job.count / 1e6;
}

constexpr Operation<CutWindowsJob> operation{.name = "cut_windows", .host = on_host, .body = body, .units = megavalues};

}  // namespace

void cut_windows(Device& device, std::span<const CutWindow> windows, const Extent& roi, const WindowOrder& order,
                 const Tensor& inputs) {
  const std::int64_t rows = inputs.shape.empty() ? 0 : inputs.shape.front();
  if (inputs.shape.size() < 2 || static_cast<std::int64_t>(windows.size()) > rows || windows.size() > max_windows ||
      inputs.elements() != rows * inputs.shape[1] * roi.values() ||
      (inputs.dtype != DType::f32 && inputs.dtype != DType::f16 && inputs.dtype != DType::bf16))
    throw std::invalid_argument("cut_windows: takes a tensor [windows, channels, ...] of f32, f16 or bf16");
  if (rows == 0) return;
  CutWindowsJob job;
  job.count = static_cast<int>(rows);
  job.channels = static_cast<int>(inputs.shape[1]);
  job.roi = roi;
  job.order = order;
  job.type = inputs.dtype;
  job.inputs = inputs.data;
  std::vector<WindowSource> sources;
  std::vector<PlacedWindow> placed(static_cast<std::size_t>(rows));
  const WindowSource* last = nullptr;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const WindowSource* const source = windows[i].source;
    if (source == nullptr) continue;
    const bool first_only = job.channels == 1 && !source->reversed;
    if ((source->channels != job.channels && !first_only) || (source->type != DType::u8 && source->type != DType::f32))
      throw std::invalid_argument("cut_windows: a source has another number of channels, or is not u8 or f32");
    // Windows of one item are adjacent.
    if (source != last) sources.push_back(*source);
    last = source;
    placed[i] = {static_cast<int>(sources.size()) - 1, windows[i].start, windows[i].mirror};
  }
  if (device.on_host()) {
    job.sources = sources.data();
    job.windows = placed.data();
  } else {
    for (WindowSource& source : sources) {
      if (source.hole_count > 0)
        source.holes = device.store(std::span(source.holes, static_cast<std::size_t>(source.hole_count)));
    }
    job.sources = device.store(std::span<const WindowSource>(sources));
    job.windows = device.store(std::span<const PlacedWindow>(placed));
  }
  device.run(operation, job);
}

}  // namespace millrace
