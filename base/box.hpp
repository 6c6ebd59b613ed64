#pragma once

namespace millrace {

/// A box by its corners, in pixels of the picture that the context names: x0 <= x < x1, y0 <= y < y1.
struct Box {
  float x0 = 0, y0 = 0, x1 = 0, y1 = 0;

  friend bool operator==(const Box&, const Box&) = default;
};

}  // namespace millrace
