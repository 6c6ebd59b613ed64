#include "gpu/windows.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "gpu/clones.hpp"

namespace millrace {
namespace {

struct Axis {
  int before = 0;
  std::vector<int> starts;
};

Axis axis_of(int length, int roi, const WindowOptions& options) {
  Axis axis;
  const int padding = std::max(roi - length, 0);
  axis.before = padding / 2;
  const int padded = length + padding;
  int step = roi;
  if (padded != roi) step = std::max(static_cast<int>(roi * (1 - options.overlap)), 1);
  step = std::max(step / options.align, 1) * options.align;
  const int last = padded - roi;
  for (int start = 0; start < last; start += step) axis.starts.push_back(start);
  axis.starts.push_back((last + options.align - 1) / options.align * options.align);
  return axis;
}

// The exponentials are float32 and their products too, as in MONAI. Other roundings would move weights near the clamp.
std::vector<float> gaussian(int length, double sigma) {
  std::vector<float> factors(static_cast<std::size_t>(length));
  const auto deviation = static_cast<float>(-2 * (sigma * length) * (sigma * length));
  for (int i = 0; i < length; ++i) {
    const float x = static_cast<float>(i) - static_cast<float>(length - 1) / 2;
    factors[static_cast<std::size_t>(i)] = std::exp(x * x / deviation);
  }
  return factors;
}

}  // namespace

WindowGrid::WindowGrid(const Extent& item_size, const WindowOptions& options) : item(item_size), roi(options.roi) {
  const auto positive = [](const Extent& size) { return size.rows > 0 && size.lines > 0 && size.columns > 0; };
  if (!positive(item) || !positive(roi)) throw std::invalid_argument("windows: a side is below 1");
  if (!(options.overlap >= 0 && options.overlap < 1) || options.align < 1)
    throw std::invalid_argument("windows: the overlap must be at least 0 and below 1, and align at least 1");
  Axis of_rows = axis_of(item.rows, roi.rows, options), of_lines = axis_of(item.lines, roi.lines, options),
       of_columns = axis_of(item.columns, roi.columns, options);
  before = {of_rows.before, of_lines.before, of_columns.before};
  rows = std::move(of_rows.starts);
  lines = std::move(of_lines.starts);
  columns = std::move(of_columns.starts);
  for (int axis = 0; axis < 3; ++axis) {
    if (options.from_end.along(axis)) turn(axis);
  }
}

void WindowGrid::turn(int axis) {
  std::vector<int>& starts = axis == 0 ? columns : axis == 1 ? lines : rows;
  const int last = starts.back();
  std::ranges::reverse(starts);
  for (int& start : starts) start = last - start;
  before.along(axis) = last + roi.along(axis) - item.along(axis) - before.along(axis);
}

Extent WindowGrid::start(std::int64_t window) const {
  const auto across = static_cast<std::int64_t>(columns.size());
  const std::int64_t in_band = window % band_windows();
  return {rows[static_cast<std::size_t>(window / band_windows())], lines[static_cast<std::size_t>(in_band / across)],
          columns[static_cast<std::size_t>(in_band % across)]};
}

int WindowGrid::complete_before(int band) const {
  return band < bands() ? rows[static_cast<std::size_t>(band)] : rows.back() + roi.rows;
}

MILLRACE_CLONES void exchange_outer_axes(int a, int middle, int b, int first, int count, const float* from, float* to) {
  // Blocks, because steps are often powers of two, whose places share few lines of the cache.
  constexpr int side = 8;
  const std::int64_t from_step = std::int64_t{middle} * b, to_step = std::int64_t{count} * a;
  for (int i = 0; i < a; i += side) {
    for (int m = 0; m < count; ++m) {
      for (int j = 0; j < b; j += side) {
        const float* source = from + i * from_step + std::int64_t{first + m} * b + j;
        float* target = to + j * to_step + std::int64_t{m} * a + i;
        if (i + side > a || j + side > b) {
          for (int y = j; y < std::min(j + side, b); ++y, ++source, target += to_step) {
            for (int x = 0; x < std::min(side, a - i); ++x) target[x] = source[x * from_step];
          }
          continue;
        }
        float block[side][side];
        for (int x = 0; x < side; ++x) std::copy_n(source + x * from_step, side, block[x]);
        for (int y = 0; y < side; ++y, target += to_step) {
          for (int x = 0; x < side; ++x) target[x] = block[x][y];
        }
      }
    }
  }
}

std::vector<Mirror> mirrors_of(const Mirror& axes) {
  std::vector<Mirror> all{{}};
  const auto double_along = [&](bool Mirror::*axis) {
    if (!(axes.*axis)) return;
    const std::size_t count = all.size();
    for (std::size_t i = 0; i < count; ++i) {
      all.push_back(all[i]);
      all.back().*axis = true;
    }
  };
  double_along(&Mirror::columns);
  double_along(&Mirror::lines);
  double_along(&Mirror::rows);
  return all;
}

void mirror_window(const Extent& roi, const WindowOrder& order, const Mirror& mirror, const float* from, float* to) {
  const int slow_side = roi.along(order.slow), middle_side = roi.along(order.middle), fast_side = roi.along(order.fast);
  for (int slow = 0; slow < slow_side; ++slow) {
    for (int middle = 0; middle < middle_side; ++middle, to += fast_side) {
      const int from_slow = mirror.along(order.slow) ? slow_side - 1 - slow : slow,
                from_middle = mirror.along(order.middle) ? middle_side - 1 - middle : middle;
      const float* const line = from + (std::int64_t{from_slow} * middle_side + from_middle) * fast_side;
      if (mirror.along(order.fast)) {
        std::reverse_copy(line, line + fast_side, to);
      } else {
        std::copy_n(line, fast_side, to);
      }
    }
  }
}

void reorder_window(const Extent& roi, const WindowOrder& from_order, const WindowOrder& to_order, const float* from,
                    float* to) {
  if (from_order.slow == to_order.fast && from_order.middle == to_order.middle)
    return exchange_outer_axes(roi.along(from_order.slow), roi.along(from_order.middle), roi.along(from_order.fast), 0,
                               roi.along(from_order.middle), from, to);
  const auto step = [&](int axis) {
    const std::int64_t fast = roi.along(from_order.fast);
    return axis == from_order.fast ? 1 : axis == from_order.middle ? fast : fast * roi.along(from_order.middle);
  };
  const std::int64_t slow_step = step(to_order.slow), middle_step = step(to_order.middle),
                     fast_step = step(to_order.fast);
  for (int slow = 0; slow < roi.along(to_order.slow); ++slow) {
    for (int middle = 0; middle < roi.along(to_order.middle); ++middle) {
      const float* line = from + slow * slow_step + middle * middle_step;
      for (int fast = 0; fast < roi.along(to_order.fast); ++fast, line += fast_step) *to++ = *line;
    }
  }
}

std::vector<float> window_weights(const WindowOptions& options) {
  const Extent& roi = options.roi;
  std::vector<float> weights(static_cast<std::size_t>(roi.values()), 1.0F);
  if (options.weights == WindowWeights::constant) return weights;
  const std::vector<float> rows = gaussian(roi.rows, options.sigma), lines = gaussian(roi.lines, options.sigma),
                           columns = gaussian(roi.columns, options.sigma);
  std::size_t at = 0;
  for (const float row : rows) {
    for (const float line : lines) {
      for (const float column : columns) weights[at++] = row * line * column;
    }
  }
  const float least = std::max(*std::ranges::min_element(weights), 1e-3F);
  for (float& weight : weights) weight = std::max(weight, least);
  return weights;
}

}  // namespace millrace
