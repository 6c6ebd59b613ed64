#pragma once

#include <cstdint>

namespace millrace {

/// The size of a picture, a volume or a window, or a place in it, along its three axes, slowest first.
/// A row is the unit of slabs: a line of a picture, or a slice of a volume.
///
/// - A picture of 20 lines and 30 columns is {20, 1, 30}.
/// - A volume of 10 slices is {10, lines, columns}.
struct Extent {
  int rows = 1, lines = 1, columns = 1;
  constexpr std::int64_t values() const { return std::int64_t{rows} * lines * columns; }
  constexpr std::int64_t row_values() const { return std::int64_t{lines} * columns; }
  /// The side along an axis: 0 columns, 1 lines, 2 rows.
  constexpr int along(int axis) const { return axis == 0 ? columns : axis == 1 ? lines : rows; }
  constexpr int& along(int axis) { return axis == 0 ? columns : axis == 1 ? lines : rows; }
  bool operator==(const Extent&) const = default;
};

}  // namespace millrace
