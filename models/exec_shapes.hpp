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

/// Rows that a variant computes in a call with `rows` rows. `row_counts` are those of its libraries, smallest first.
/// `rows` if there are none.
inline int computed_rows(int rows, const std::vector<int>& row_counts) {
  if (row_counts.empty()) return rows;
  const int most = row_counts.back(), rest = rows % most;
  return rest == 0 ? rows : rows - rest + *std::lower_bound(row_counts.begin(), row_counts.end(), rest);
}

}  // namespace millrace
