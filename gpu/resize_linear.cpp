#include "gpu/resize_linear.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "gpu/clones.hpp"
#include "gpu/resample_table.hpp"

namespace millrace {
namespace {

/// A row after the first pass, with the upper 7 of its 11 fraction bits.
/// The second pass reads only these, and they fit 16 bits.
using Row = std::vector<std::int16_t>;

/// The two taps of a column: their offsets in a row, in bytes, and their weights.
struct Column {
  std::int32_t left, right, left_weight, right_weight;
};

std::vector<Column> columns(int from, int to) {
  const ResampleTable table = linear_table(from, to, false);
  std::vector<Column> result(static_cast<std::size_t>(to));
  for (std::size_t i = 0; i < result.size(); ++i) {
    // The last column has no right neighbour. Its right weight is 0, so any pixel serves.
    result[i] = {3 * table.first[i], 3 * std::min(table.first[i] + 1, from - 1), table.weights[2 * i],
                 table.weights[2 * i + 1]};
  }
  return result;
}

/// Its results are at most 255 * 2048 >> 4 = 32,640, so they fit 16 bits.
MILLRACE_CLONES void across(const std::uint8_t* __restrict from, const Column* columns, int width,
                            std::int16_t* __restrict to) {
  for (int x = 0; x < width; ++x) {
    const Column column = columns[x];
    const std::uint8_t *left = from + column.left, *right = from + column.right;
    for (int c = 0; c < 3; ++c)
      to[3 * x + c] = static_cast<std::int16_t>((left[c] * column.left_weight + right[c] * column.right_weight) >> 4);
  }
}

MILLRACE_CLONES void down(const std::int16_t* __restrict upper, const std::int16_t* __restrict lower,
                          std::int16_t upper_weight, std::int16_t lower_weight, int count,
                          std::uint8_t* __restrict to) {
  for (int i = 0; i < count; ++i) {
    // OpenCV shifts each product before the sum. One shift of the sum would round differently.
    const int sum = ((upper[i] * upper_weight) >> 16) + ((lower[i] * lower_weight) >> 16);
    to[i] = static_cast<std::uint8_t>((sum + 2) >> 2);
  }
}

MILLRACE_CLONES void mean_of_four(const std::uint8_t* __restrict upper, const std::uint8_t* __restrict lower, int width,
                                  std::uint8_t* __restrict to) {
  for (int x = 0; x < width; ++x) {
    for (int c = 0; c < 3; ++c) {
      const int i = 6 * x + c;
      to[3 * x + c] = static_cast<std::uint8_t>((upper[i] + upper[i + 3] + lower[i] + lower[i + 3] + 2) >> 2);
    }
  }
}

}  // namespace

std::vector<std::uint8_t> resize_linear(const Image8& pixels, int width, int height) {
  const std::ptrdiff_t from_row = 3 * static_cast<std::ptrdiff_t>(pixels.width);
  const std::ptrdiff_t to_row = 3 * static_cast<std::ptrdiff_t>(width);
  std::vector<std::uint8_t> result(static_cast<std::size_t>(to_row) * static_cast<std::size_t>(height));
  // OpenCV replaces INTER_LINEAR by INTER_AREA in this case.
  if (pixels.width == 2 * width && pixels.height == 2 * height) {
    for (std::ptrdiff_t y = 0; y < height; ++y) {
      const std::uint8_t* upper = pixels.data + 2 * y * from_row;
      mean_of_four(upper, upper + from_row, width, result.data() + y * to_row);
    }
    return result;
  }
  const ResampleTable rows = linear_table(pixels.height, height, true);
  const std::vector<Column> taps = columns(pixels.width, width);
  // The last two rows after the first pass. The lower row of one output is often the upper row of the next.
  std::array<Row, 2> done{Row(static_cast<std::size_t>(to_row)), Row(static_cast<std::size_t>(to_row))};
  std::array<int, 2> which{-1, -1};
  // `other` is the second row of the same output, so the new row must not overwrite it.
  const auto done_across = [&](int row, int other) {
    const int y = std::clamp(row, 0, pixels.height - 1);
    const std::size_t keep = static_cast<std::size_t>(which[0] == std::clamp(other, 0, pixels.height - 1) ? 0 : 1);
    const std::size_t slot = which[0] == y ? 0 : which[1] == y ? 1 : 1 - keep;
    if (which[slot] != y) {
      across(pixels.data + y * from_row, taps.data(), width, done[slot].data());
      which[slot] = y;
    }
    return done[slot].data();
  };
  for (std::ptrdiff_t y = 0; y < height; ++y) {
    const auto i = static_cast<std::size_t>(y);
    const std::int16_t* upper = done_across(rows.first[i], rows.first[i] + 1);
    const std::int16_t* lower = done_across(rows.first[i] + 1, rows.first[i]);
    down(upper, lower, static_cast<std::int16_t>(rows.weights[2 * i]),
         static_cast<std::int16_t>(rows.weights[2 * i + 1]), 3 * width, result.data() + y * to_row);
  }
  return result;
}

}  // namespace millrace
