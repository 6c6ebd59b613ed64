#include "stages/point_finder.hpp"

#include <algorithm>

namespace millrace {
namespace {

constexpr int rows_kept = 3;

}  // namespace

PointFinder::PointFinder(const Extent& size, int channels, int most, float least)
    : size_(size), channels_(channels), most_(static_cast<std::size_t>(most)), least_(least) {
  kept_.resize(static_cast<std::size_t>(rows_kept * size.row_values() * channels));
  found_.resize(static_cast<std::size_t>(channels));
}

// A row is searched when the one after it is known.
void PointFinder::add(std::span<const float> rows) {
  const auto row_values = static_cast<std::size_t>(size_.row_values() * channels_);
  for (; !rows.empty(); rows = rows.subspan(row_values)) {
    const auto place = static_cast<std::size_t>(rows_ % rows_kept) * row_values;
    std::ranges::copy(rows.first(row_values), kept_.begin() + static_cast<std::ptrdiff_t>(place));
    ++rows_;
    if (rows_ > 1) search(rows_ - 2);
  }
}

std::vector<std::vector<Point>> PointFinder::finish() {
  if (rows_ > 0) search(rows_ - 1);
  std::vector<std::vector<Point>> points;
  for (std::vector<Found>& of_channel : found_) {
    std::ranges::sort(of_channel, better);
    std::vector<Point>& sorted = points.emplace_back();
    for (const Found& one : of_channel) sorted.push_back(one.point);
  }
  return points;
}

void PointFinder::search(int row) {
  for (int line = 0; line < size_.lines; ++line) search_line(row, line);
}

void PointFinder::search_line(int row, int line) {
  const float* values = &kept_[index_of({row, line, 0}, 0)];
  for (int column = 0; column < size_.columns; ++column) {
    for (int channel = 0; channel < channels_; ++channel, ++values) {
      // Most values are no maximum of their line, which is quick to see.
      if (!(*values >= least_) || (column > 0 && values[-channels_] >= *values)) continue;
      if (column + 1 < size_.columns && values[channels_] > *values) continue;
      const Extent at{row, line, column};
      if (is_maximum(at, channel)) keep(at, channel);
    }
  }
}

bool PointFinder::is_maximum(const Extent& at, int channel) const {
  const float here = value(at, channel);
  constexpr int neighbours = 27, itself = neighbours / 2;
  for (int n = 0; n < neighbours; ++n) {
    const Extent other{at.rows + n / 9 - 1, at.lines + n / 3 % 3 - 1, at.columns + n % 3 - 1};
    if (n == itself || other.rows < 0 || other.rows >= size_.rows || other.lines < 0 || other.lines >= size_.lines ||
        other.columns < 0 || other.columns >= size_.columns)
      continue;
    const float there = value(other, channel);
    if (n < itself ? there >= here : there > here) return false;
  }
  return true;
}

void PointFinder::keep(const Extent& at, int channel) {
  std::vector<Found>& of_channel = found_[static_cast<std::size_t>(channel)];
  const Found found{{at.rows + 0.5 + offset(at, 2, channel), at.lines + 0.5 + offset(at, 1, channel),
                     at.columns + 0.5 + offset(at, 0, channel), value(at, channel)},
                    (std::int64_t{at.rows} * size_.lines + at.lines) * size_.columns + at.columns};
  if (of_channel.size() == most_) {
    if (!better(found, of_channel.front())) return;
    std::ranges::pop_heap(of_channel, better);
    of_channel.pop_back();
  }
  of_channel.push_back(found);
  std::ranges::push_heap(of_channel, better);
}

std::size_t PointFinder::index_of(const Extent& at, int channel) const {
  const std::int64_t place =
      at.rows % rows_kept * size_.row_values() + std::int64_t{at.lines} * size_.columns + at.columns;
  return static_cast<std::size_t>(place * channels_ + channel);
}

double PointFinder::offset(const Extent& at, int axis, int channel) const {
  if (at.along(axis) == 0 || at.along(axis) + 1 == size_.along(axis)) return 0;
  Extent before = at, after = at;
  --before.along(axis);
  ++after.along(axis);
  const double low = value(before, channel), here = value(at, channel), high = value(after, channel);
  const double bend = low - 2 * here + high;
  // A maximum with equal neighbours is flat. Others bend down.
  return bend < 0 ? std::clamp((low - high) / (2 * bend), -0.5, 0.5) : 0;
}

bool PointFinder::better(const Found& a, const Found& b) {
  return a.point.value > b.point.value || (a.point.value == b.point.value && a.order < b.order);
}

}  // namespace millrace
