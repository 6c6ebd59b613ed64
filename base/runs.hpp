#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

/// Builds the run lengths of a COCO mask.
/// They count pixels outside, inside, outside, ..., column by column from the top left. The first count may be 0.
class RunBuilder {
 public:
  /// Appends `length` pixels that are all inside or all outside.
  void append(bool inside, std::uint32_t length) {
    if (length == 0) return;
    if (inside != inside_) {
      counts_.push_back(0);
      inside_ = inside;
    }
    counts_.back() += length;
  }
  /// Returns the counts and empties the builder.
  std::vector<std::uint32_t> take() {
    std::vector<std::uint32_t> counts{0};
    counts.swap(counts_);
    inside_ = false;
    return counts;
  }

 private:
  std::vector<std::uint32_t> counts_{0};
  bool inside_ = false;
};

/// Returns the number of pixels inside.
std::int64_t run_area(std::span<const std::uint32_t> counts);

/// A box of whole pixels.
struct PixelBox {
  int x = 0, y = 0, width = 0, height = 0;

  friend bool operator==(const PixelBox&, const PixelBox&) = default;
};

/// Returns the smallest box around the pixels inside, all zero for an empty mask.
/// `height` is the height of the picture.
PixelBox run_bounds(std::span<const std::uint32_t> counts, int height);

}  // namespace millrace
