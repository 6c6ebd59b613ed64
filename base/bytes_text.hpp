#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

/// A number of bytes as options take it: 65536 as "64k", 1000 as "1000".
inline std::string bytes_text(std::int64_t value) {
  constexpr std::string_view units = "kMGT";
  std::size_t steps = 0;
  while (steps < units.size() && value != 0 && value % 1024 == 0) {
    value /= 1024;
    ++steps;
  }
  return std::to_string(value) + (steps == 0 ? "" : std::string(1, units[steps - 1]));
}

}  // namespace millrace
