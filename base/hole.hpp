#pragma once

namespace millrace {

/// A rectangle of a picture whose pixels could not be read. The ends are exclusive.
struct Hole {
  int first_row = 0, end_row = 0;
  int first_column = 0, end_column = 0;
  bool operator==(const Hole&) const = default;
};

}  // namespace millrace
