#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

/// Rows [begin, end) of one column that a mask covers.
struct ColumnSpan {
  int column = 0, begin = 0, end = 0;
};

/// The pixels of a COCO run-length mask (column-major runs, zeros first).
/// Columns come from the left, the spans of a column from top to bottom.
/// Throws std::invalid_argument if the runs do not add up to width x height.
std::vector<ColumnSpan> column_spans(std::span<const std::uint32_t> counts, int width, int height);

}  // namespace millrace
