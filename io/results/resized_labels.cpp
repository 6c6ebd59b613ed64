#include "io/results/resized_labels.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace millrace {
namespace {

/// The place in `from` in which the centre of place `at` of `to` lies.
int nearest(int at, int from, int to) { return std::min(static_cast<int>((at + 0.5) * from / to), from - 1); }

std::vector<int> all_nearest(int from, int to) {
  std::vector<int> all(static_cast<std::size_t>(to));
  for (int i = 0; i < to; ++i) all[static_cast<std::size_t>(i)] = nearest(i, from, to);
  return all;
}

class ResizedLabels final : public LabelRows {
 public:
  ResizedLabels(std::shared_ptr<const LabelRows> labels, const Extent& from, const Extent& to)
      : labels_(std::move(labels)),
        from_(from),
        to_(to),
        lines_(all_nearest(from.lines, to.lines)),
        columns_(all_nearest(from.columns, to.columns)) {}

  void read(const Take& take) const override {
    const auto from_values = static_cast<std::size_t>(from_.row_values());
    std::vector<std::uint8_t> row(static_cast<std::size_t>(to_.row_values()));
    int next = 0, filled = -1;
    labels_->read([&](int first, std::span<const std::uint8_t> slab) {
      const int end = first + static_cast<int>(slab.size() / from_values);
      for (; next < to_.rows; ++next) {
        const int from = nearest(next, from_.rows, to_.rows);
        if (from >= end) break;
        // Rows that are enlarged follow one another.
        if (std::exchange(filled, from) != from)
          fill_row(slab.data() + static_cast<std::size_t>(from - first) * from_values, row.data());
        take(next, row);
      }
    });
  }

 private:
  void fill_row(const std::uint8_t* from, std::uint8_t* to) const {
    for (const int line : lines_) {
      const std::uint8_t* const of_line = from + std::ptrdiff_t{line} * from_.columns;
      for (const int column : columns_) *to++ = of_line[column];
    }
  }

  const std::shared_ptr<const LabelRows> labels_;
  const Extent from_, to_;
  const std::vector<int> lines_, columns_;
};

}  // namespace

std::shared_ptr<const LabelRows> resized_labels(std::shared_ptr<const LabelRows> labels, const Extent& from,
                                                const Extent& to) {
  if (from == to) return labels;
  return std::make_shared<ResizedLabels>(std::move(labels), from, to);
}

}  // namespace millrace
