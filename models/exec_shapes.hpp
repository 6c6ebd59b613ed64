#pragma once

#include <algorithm>
#include <bit>
#include <vector>

namespace millrace {

/// Rows of a padded call for `rows` pictures (or boxes of a decoder): the next power of two, at most `most`.
/// So a model has few shapes, all known before a run, and less than half of a call is padding.
inline int padded_rows(int rows, int max_rows) {
  return std::max(rows, std::min(max_rows, static_cast<int>(std::bit_ceil(static_cast<unsigned>(rows)))));
}

/// All row counts that padded calls of at most `most` rows can have, largest first.
inline std::vector<int> padded_shapes(int max_rows) {
  std::vector<int> shapes{max_rows};
  while (shapes.back() > 1) shapes.push_back(static_cast<int>(std::bit_ceil(static_cast<unsigned>(shapes.back())) / 2));
  return shapes;
}

}  // namespace millrace
