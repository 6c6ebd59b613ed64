#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

/// Builds column-major runs as COCO has them: counts of 0, 1, 0, 1, ... down the columns; the first may be 0.
class RunBuilder {
 public:
  /// Adds `length` pixels of one value.
  void append(bool inside, std::uint32_t length) {
    if (length == 0) return;
    if (inside != inside_) {
      counts_.push_back(0);
      inside_ = inside;
    }
    counts_.back() += length;
  }
  /// The runs so far; the builder is empty again.
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

/// Pixels inside.
std::int64_t run_area(std::span<const std::uint32_t> counts);

/// A box of whole pixels.
struct PixelBox {
  int x = 0, y = 0, width = 0, height = 0;

  friend bool operator==(const PixelBox&, const PixelBox&) = default;
};

/// The smallest box around the pixels inside; all zero for an empty mask. `height` is that of the mask's picture.
PixelBox run_bounds(std::span<const std::uint32_t> counts, int height);

}  // namespace millrace
