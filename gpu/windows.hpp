#pragma once

#include <cstdint>
#include <vector>

#include "base/extent.hpp"

namespace millrace {

/// The maximum of channels of a window that a model takes.
inline constexpr int max_channels = 16;

/// How the values of windows that overlap are weighted.
enum class WindowWeights {
  constant,  ///< all the same
  gaussian   ///< less towards the edges
};

/// The order of a window's values in memory, as the model takes and returns them: the axes (Extent::along), slowest first.
struct WindowOrder {
  int slow = 2, middle = 1, fast = 0;
  bool operator==(const WindowOrder&) const = default;
};
/// Pictures, and volumes as [z, y, x] or [x, y, z] of the file.
inline constexpr WindowOrder rows_first{2, 1, 0}, columns_first{0, 1, 2};

/// The index of a place of a window in its memory.
constexpr std::int64_t place_of(const Extent& roi, const WindowOrder& order, const Extent& place) {
  return (std::int64_t{place.along(order.slow)} * roi.along(order.middle) + place.along(order.middle)) *
             roi.along(order.fast) +
         place.along(order.fast);
}

/// The place with this index: the inverse of place_of().
constexpr Extent place_at(const Extent& roi, const WindowOrder& order, std::int64_t index) {
  const int fast = roi.along(order.fast), middle = roi.along(order.middle);
  Extent place;
  place.along(order.fast) = static_cast<int>(index % fast);
  place.along(order.middle) = static_cast<int>(index / fast % middle);
  place.along(order.slow) = static_cast<int>(index / fast / middle);
  return place;
}

/// The axes along which a window is mirrored.
struct Mirror {
  bool rows = false, lines = false, columns = false;
  constexpr bool any() const { return rows || lines || columns; }
  /// Whether it is mirrored along an axis (Extent::along).
  constexpr bool along(int axis) const { return axis == 0 ? columns : axis == 1 ? lines : rows; }
  constexpr bool& along(int axis) { return axis == 0 ? columns : axis == 1 ? lines : rows; }
  /// The place that comes to `place`, and back.
  constexpr Extent of(const Extent& roi, const Extent& place) const {
    return {rows ? roi.rows - 1 - place.rows : place.rows, lines ? roi.lines - 1 - place.lines : place.lines,
            columns ? roi.columns - 1 - place.columns : place.columns};
  }
  bool operator==(const Mirror&) const = default;
};

/// All ways to mirror windows along these axes, none of them first: 2, 4 or 8.
std::vector<Mirror> mirrors_of(const Mirror& axes);

struct WindowOptions {
  Extent roi;             ///< size of a window
  double overlap = 0.25;  ///< share of a window that the next one repeats, 0 to below 1
  WindowWeights weights = WindowWeights::gaussian;
  double sigma = 0.125;  ///< of the Gaussian, as a share of the window's side
  int align = 1;         ///< first rows, lines and columns of windows are multiples of it
  Mirror from_end{};     ///< windows are placed from the end of these axes, which the model sees reversed
  bool operator==(const WindowOptions&) const = default;
};

/// The windows of one picture or volume, as `monai.inferers.sliding_window_inference` places them (MONAI 1.6):
///
/// - An axis shorter than the window is padded on both sides; an odd value goes behind.
/// - The step of an axis is int(roi * (1 - overlap)), at least 1. If the axis is as long as the window, there is one.
/// - The last window of an axis ends where the axis ends.
///
/// With `align` above 1 (which MONAI does not have) steps are rounded down to a multiple of it, at least one multiple.
/// The last window then starts at the next multiple, and padding behind the axis fills it.
///
/// Along axes of `from_end`, all of this is mirrored: the first window ends where the axis ends.
///
/// Windows are numbered with columns fastest and rows slowest. Those with the same first row are a band.
struct WindowGrid {
  WindowGrid() = default;
  /// Throws std::invalid_argument for sizes below 1, and for an overlap outside of its range.
  WindowGrid(const Extent& item_size, const WindowOptions& options);

  Extent item, roi;
  Extent before;                          ///< padding before the item
  std::vector<int> rows, lines, columns;  ///< where windows start, in the padded item

  int bands() const { return static_cast<int>(rows.size()); }
  std::int64_t band_windows() const { return static_cast<std::int64_t>(lines.size() * columns.size()); }
  std::int64_t windows() const { return bands() * band_windows(); }
  int band_of(std::int64_t window) const { return static_cast<int>(window / band_windows()); }
  /// The size of the item with its padding.
  Extent padded() const { return {rows.back() + roi.rows, lines.back() + roi.lines, columns.back() + roi.columns}; }
  /// Where the window starts, in the padded item.
  Extent start(std::int64_t window) const;
  /// The padded rows that no window from this band on touches: rows before it are complete. band may be bands().
  int complete_before(int band) const;

 private:
  void turn(int axis);
};

/// Exchanges the slowest and the fastest axis of `count` places of the middle one, from `first` on:
/// `from` is [a][middle][b], `to` becomes [b][count][a].
void exchange_outer_axes(int a, int middle, int b, int first, int count, const float* from, float* to);

/// Mirrors one window whose values have this order.
void mirror_window(const Extent& roi, const WindowOrder& order, const Mirror& mirror, const float* from, float* to);

/// Changes the order of one window's values.
void reorder_window(const Extent& roi, const WindowOrder& from_order, const WindowOrder& to_order, const float* from,
                    float* to);

/// The weight of each value of a window, with rows first. As MONAI 1.6:
/// the product of exp(-x^2 / (2 (sigma roi)^2)) over the axes, x from the window's centre, at least 0.001 and at least
/// the smallest product. An axis with one value has the factor 1.
std::vector<float> window_weights(const WindowOptions& options);

}  // namespace millrace
