#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/tensor.hpp"
#include "gpu/windows.hpp"

namespace millrace {

/// Which pixels or voxels are empty, such as the glass of a slide, or air. Numbers are those of the file.
struct EmptyRule {
  std::optional<float> above, below;  ///< empty: all channels exceed `above`, or all are less than `below`
  bool any() const { return above || below; }
};

/// Finds the windows that need no model, since all their places in the item are empty.
class WindowFilter {
 public:
  /// Rows are [line][column][channel], u8 or f32.
  WindowFilter(WindowGrid grid, const EmptyRule& rule, int channels, DType type);

  /// Looks at rows [first, first + count) of the item. Each call continues where the last one ended; the first one may
  /// begin anywhere.
  /// Another thread may call needs_model() meanwhile, for windows whose rows all came in earlier calls.
  void add(int first, int count, const void* rows);

  /// Whether the window needs the model. False only after all its rows were added.
  bool needs_model(std::int64_t window) const { return needed_[static_cast<std::size_t>(window)] != 0; }

 private:
  struct Span {
    int begin = 0, end = 0;
  };
  /// The part of a window that lies in the item, along one axis.
  static Span inside(int start, int side, int before, int size) {
    return {std::max(start - before, 0), std::min(start + side - before, size)};
  }
  template <class T>
  void look_at_line(int row, int line, const T* values);
  void decide(int row);

  const WindowGrid grid_;
  const EmptyRule rule_;
  const int channels_;
  const DType type_;
  std::vector<int> full_;             // of the line: places that are not empty before each column
  std::vector<int> last_;             // by window of a band: the last row with a place that is not empty
  int first_ = -1;                    // row that add() got
  int band_ = 0;                      // the first that is not decided
  std::vector<std::uint8_t> needed_;  // by window; bytes, because threads may not share the bits of one
};

}  // namespace millrace
