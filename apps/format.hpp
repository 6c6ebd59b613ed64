#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <string>

namespace millrace {

/// std::snprintf() as a string, cut at 511 characters.
template <class... Values>
std::string format(const char* pattern, Values... values) {
  std::array<char, 512> text{};
  const int length = std::snprintf(text.data(), text.size(), pattern, values...);
  return {text.data(), static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(text.size()) - 1))};
}

}  // namespace millrace
