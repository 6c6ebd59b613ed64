#include "stages/window_filter.hpp"

#include <algorithm>
#include <utility>

namespace millrace {

WindowFilter::WindowFilter(WindowGrid grid, const EmptyRule& rule, int channels, DType type)
    : grid_(std::move(grid)),
      rule_(rule),
      channels_(channels),
      type_(type),
      full_(static_cast<std::size_t>(grid_.item.columns) + 1),
      last_(static_cast<std::size_t>(grid_.band_windows()), -1),
      needed_(static_cast<std::size_t>(grid_.windows()), 1) {}

void WindowFilter::add(int first, int count, const void* rows) {
  const std::int64_t line_values = std::int64_t{grid_.item.columns} * channels_;
  if (first_ < 0) first_ = first;
  for (int i = 0; i < count; ++i) {
    for (int line = 0; line < grid_.item.lines; ++line) {
      const std::int64_t at = (std::int64_t{i} * grid_.item.lines + line) * line_values;
      if (type_ == DType::u8) {
        look_at_line(first + i, line, static_cast<const std::uint8_t*>(rows) + at);
      } else {
        look_at_line(first + i, line, static_cast<const float*>(rows) + at);
      }
    }
    decide(first + i);
  }
}

template <class T>
void WindowFilter::look_at_line(int row, int line, const T* values) {
  for (int column = 0; column < grid_.item.columns; ++column, values += channels_) {
    bool above = rule_.above.has_value(), below = rule_.below.has_value();
    for (int c = 0; c < channels_; ++c) {
      const auto value = static_cast<float>(values[c]);
      above = above && value > *rule_.above;
      below = below && value < *rule_.below;
    }
    const auto at = static_cast<std::size_t>(column);
    full_[at + 1] = full_[at] + (above || below ? 0 : 1);
  }
  std::size_t window = 0;
  for (const int line_start : grid_.lines) {
    const Span lines = inside(line_start, grid_.roi.lines, grid_.before.lines, grid_.item.lines);
    for (const int column_start : grid_.columns) {
      const Span columns = inside(column_start, grid_.roi.columns, grid_.before.columns, grid_.item.columns);
      const bool full = full_[static_cast<std::size_t>(columns.end)] > full_[static_cast<std::size_t>(columns.begin)];
      if (full && line >= lines.begin && line < lines.end) last_[window] = row;
      ++window;
    }
  }
}

// Decides the bands whose last row this is.
void WindowFilter::decide(int row) {
  for (; band_ < grid_.bands(); ++band_) {
    const int start = grid_.rows[static_cast<std::size_t>(band_)];
    const Span rows = inside(start, grid_.roi.rows, grid_.before.rows, grid_.item.rows);
    if (rows.end > row + 1) return;
    if (rows.begin < first_) continue;  // not all rows of it came
    for (std::size_t i = 0; i < last_.size(); ++i)
      needed_[static_cast<std::size_t>(band_) * last_.size() + i] = last_[i] >= rows.begin ? 1 : 0;
  }
}

}  // namespace millrace
