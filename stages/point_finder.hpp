#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/extent.hpp"

namespace millrace {

/// A maximum of a heatmap: its place along the axes of an Extent, in pixels or voxels. The centre of the first one is
/// 0.5 along each axis.
struct Point {
  double rows = 0, lines = 0, columns = 0;
  float value = 0;  ///< of the pixel or voxel
};

/// Finds the maxima of heatmaps whose values come row by row. A maximum exceeds each of its neighbours: a pixel has 8, a
/// voxel 26. Of equal neighbours, the first in the order of the values counts as the larger one.
/// Along each axis, its place is that of the top of a parabola through it and its two neighbours: at most half a pixel
/// away. At an edge of the picture it is the centre.
/// Memory holds the values of three rows and the best maxima. It does not depend on the number of rows.
class PointFinder {
 public:
  /// The best `most` maxima of each channel with a value of at least `least`. `most` is 1 or more.
  PointFinder(const Extent& size, int channels, int most, float least);

  /// The next whole rows: [row][line][column][channel], all finite.
  void add(std::span<const float> rows);
  /// The points of each channel, the best first; of equal ones, the first in the order of the values. Call it once,
  /// after the last row.
  std::vector<std::vector<Point>> finish();

 private:
  struct Found {
    Point point;
    std::int64_t order = 0;  ///< index of its pixel
  };

  void search(int row);
  void search_line(int row, int line);
  bool is_maximum(const Extent& at, int channel) const;
  void keep(const Extent& at, int channel);
  /// Of a value in one of the three rows.
  std::size_t index_of(const Extent& at, int channel) const;
  float value(const Extent& at, int channel) const { return kept_[index_of(at, channel)]; }
  double offset(const Extent& at, int axis, int channel) const;
  static bool better(const Found& a, const Found& b);

  const Extent size_;
  const int channels_;
  const std::size_t most_;
  const float least_;
  int rows_ = 0;                           // that have come
  std::vector<float> kept_;                // row r is at r % 3
  std::vector<std::vector<Found>> found_;  // by channel: a heap, with the worst one first
};

}  // namespace millrace
