#include "base/text.hpp"

#include <array>
#include <cstdio>

namespace millrace {

std::string readable_bytes(double bytes) {
  constexpr std::array units{"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  // From these limits on, the number would be printed as 1000 of its unit.
  while (bytes >= (unit == 0 ? 999.5 : 999.95) && unit + 1 < units.size()) {
    bytes /= 1000;
    ++unit;
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
  return text.data();
}

std::string option_bytes(std::int64_t bytes) {
  constexpr std::string_view units = "kMGT";
  std::size_t steps = 0;
  while (steps < units.size() && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++steps;
  }
  return std::to_string(bytes) + (steps == 0 ? "" : std::string(1, units[steps - 1]));
}

std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

std::string count_of(std::int64_t number, std::string_view one, std::string_view many) {
  std::string text = grouped(number) + " ";
  if (number == 1) return text.append(one);
  return many.empty() ? text.append(one).append("s") : text.append(many);
}

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

}  // namespace millrace
