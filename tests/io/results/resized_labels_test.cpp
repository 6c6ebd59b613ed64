#include "io/results/resized_labels.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace millrace {
namespace {

/// Labels in slabs of some rows.
class FakeLabels final : public LabelRows {
 public:
  FakeLabels(const Extent& size, int slab)
      : size_(size), slab_(slab), labels_(static_cast<std::size_t>(size.values())) {
    std::mt19937 random(static_cast<unsigned>(size.values()));
    for (auto& label : labels_) label = static_cast<std::uint8_t>(random());
  }
  void read(const Take& take) const override {
    const std::span<const std::uint8_t> all(labels_);
    const auto values = static_cast<std::size_t>(size_.row_values());
    for (int first = 0; first < size_.rows; first += slab_)
      take(first, all.subspan(static_cast<std::size_t>(first) * values,
                              static_cast<std::size_t>(std::min(slab_, size_.rows - first)) * values));
  }
  std::uint8_t at(int row, int line, int column) const {
    return labels_[static_cast<std::size_t>((row * size_.lines + line) * size_.columns + column)];
  }

 private:
  const Extent size_;
  const int slab_;
  std::vector<std::uint8_t> labels_;
};

TEST_CASE("a voxel gets the label of the voxel in which its centre lies") {
  for (const auto& [from, to] : {std::pair<Extent, Extent>{{5, 6, 7}, {10, 12, 14}},
                                 {{10, 12, 14}, {5, 6, 7}},
                                 {{33, 7, 8}, {10, 9, 11}},
                                 {{1, 1, 1}, {3, 4, 5}},
                                 {{9, 8, 7}, {1, 1, 1}},
                                 {{9, 8, 7}, {9, 5, 7}}}) {
    for (const int slab : {1, 2, 7, 100}) {
      const auto labels = std::make_shared<FakeLabels>(from, slab);
      int rows = 0, wrong = 0;
      resized_labels(labels, from, to)->read([&](int first, std::span<const std::uint8_t> row) {
        CHECK(first == rows);
        REQUIRE(row.size() % static_cast<std::size_t>(to.row_values()) == 0);
        rows += static_cast<int>(row.size() / static_cast<std::size_t>(to.row_values()));
        for (std::size_t i = 0; i < row.size(); ++i) {
          // The place in units of the other volume, in whole numbers.
          const auto nearest = [](std::int64_t at, std::int64_t of, std::int64_t in) {
            return static_cast<int>((2 * at + 1) * of / (2 * in));
          };
          const std::int64_t place = first * to.row_values() + static_cast<std::int64_t>(i);
          const auto expected = labels->at(nearest(place / to.row_values(), from.rows, to.rows),
                                           nearest(place / to.columns % to.lines, from.lines, to.lines),
                                           nearest(place % to.columns, from.columns, to.columns));
          wrong += row[i] == expected ? 0 : 1;
        }
      });
      CHECK(rows == to.rows);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("labels of the same size are the same labels") {
  const auto labels = std::make_shared<FakeLabels>(Extent{3, 4, 5}, 2);
  CHECK(resized_labels(labels, {3, 4, 5}, {3, 4, 5}) == labels);
}

}  // namespace
}  // namespace millrace
