#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gpu/letterbox.hpp"
#include "gpu/resample_table.hpp"

namespace millrace {

/// Image.resize(BILINEAR) of Pillow 13 on RGB, equal to the bit.
/// - The filter is a triangle as wide as the reduction; its weights are in fixed point with 22 fraction bits.
/// - It runs along rows, then along columns, and rounds to 8 bits after each pass. A pass without a change is skipped.
/// - If it removes more than twice as many rows as columns, the columns come first.
///   Pillow before 13 does not do that and differs there by one level.
/// Returns 3 * width * height bytes without padding. Sizes are at least 1.
std::vector<std::uint8_t> resample_triangle(const Image8& pixels, int width, int height);

/// A rectangle of the resized picture.
struct PixelWindow {
  int left = 0, top = 0, width = 0, height = 0;
};
/// The same, but computes only this part of the result.
std::vector<std::uint8_t> resample_triangle(const Image8& pixels, int width, int height, const PixelWindow& window);

/// resample_triangle() row by row, for pictures that are larger than memory. It always filters along rows first.
class RowResampler {
 public:
  /// Writes a row of the picture to be resized. Rows come in ascending order, each at most once.
  using ReadRow = std::function<void(int row, std::uint8_t* to)>;

  RowResampler(int from_width, int from_height, int width, int height);
  /// The memory of such an object, in bytes.
  static std::int64_t bytes(int from_width, int from_height, int width, int height);
  /// Writes row `row` of the result into `to`, 3 * width bytes. `row` never decreases from call to call.
  void read(int row, const ReadRow& read_row, std::uint8_t* to);

 private:
  const int from_height_, width_, height_;
  const ResampleTable columns_;
  std::vector<std::int32_t> weights_, sums_;
  std::vector<std::uint8_t> from_row_;
  std::vector<std::uint8_t> rows_;  // rows [first_, next_) of the picture, filtered along x
  int first_ = 0, next_ = 0;
};

}  // namespace millrace
