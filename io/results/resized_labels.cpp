#include "io/results/resized_labels.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace millrace {
namespace {

/// The voxel of `from` in which each voxel of `to` has its centre.
std::vector<int> nearest(int from, int to) {
  std::vector<int> all(static_cast<std::size_t>(to));
  for (int i = 0; i < to; ++i)
    all[static_cast<std::size_t>(i)] = std::min(static_cast<int>((i + 0.5) * from / to), from - 1);
  return all;
}

class ResizedLabels final : public LabelRows {
 public:
  ResizedLabels(std::shared_ptr<const LabelRows> labels, const Extent& from, const Extent& to)
      : labels_(std::move(labels)),
        from_(from),
        to_(to),
        rows_(nearest(from.rows, to.rows)),
        lines_(nearest(from.lines, to.lines)),
        columns_(nearest(from.columns, to.columns)) {}

  void read(const Take& take) const override {
    const auto from_values = static_cast<std::size_t>(from_.row_values());
    std::vector<std::uint8_t> row(static_cast<std::size_t>(to_.row_values()));
    int next = 0;
    labels_->read([&](int first, std::span<const std::uint8_t> slab) {
      const int end = first + static_cast<int>(slab.size() / from_values);
      for (; next < to_.rows && rows_[static_cast<std::size_t>(next)] < end; ++next) {
        const int from = rows_[static_cast<std::size_t>(next)];
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
  const std::vector<int> rows_, lines_, columns_;
};

}  // namespace

std::shared_ptr<const LabelRows> resized_labels(std::shared_ptr<const LabelRows> labels, const Extent& from,
                                                const Extent& to) {
  if (from == to) return labels;
  return std::make_shared<ResizedLabels>(std::move(labels), from, to);
}

}  // namespace millrace
