#pragma once

#include <algorithm>
#include <bit>
#include <vector>

namespace millrace {

/// Rows (pictures, or boxes of a decoder) that a padded call for `rows` has: the next power of two, at most `most`.
/// So a model is called in few shapes, which are all known before a run, and less than half of a call is padding.
inline int padded_rows(int rows, int most) {
  return std::max(rows, std::min(most, static_cast<int>(std::bit_ceil(static_cast<unsigned>(rows)))));
}

/// Rows of all the padded calls that there may be of at most `most` rows, largest first.
inline std::vector<int> padded_shapes(int most) {
  std::vector<int> shapes{most};
  while (shapes.back() > 1) shapes.push_back(static_cast<int>(std::bit_ceil(static_cast<unsigned>(shapes.back())) / 2));
  return shapes;
}

}  // namespace millrace
