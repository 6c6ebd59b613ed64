#include "io/files/source_names.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "io/files/json_writer.hpp"

namespace millrace {
namespace {

template <class... Args>
std::string formatted(const char* format, Args... args) {
  std::array<char, 16> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), format, args...);
  return {buffer.data(), static_cast<std::size_t>(length)};
}

/// The number of the character of a valid UTF-8 sequence, as utf8_length() finds it.
unsigned code_point(std::string_view sequence) {
  unsigned value = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() > 1) value &= 0x7FU >> sequence.size();
  for (const char c : sequence.substr(1)) value = value << 6 | (static_cast<unsigned char>(c) & 0x3FU);
  return value;
}

/// Characters that change the terminal or the order of the text around them.
/// C1 controls; then the marks, separators, overrides and isolates of bidirectional text.
bool is_dangerous(unsigned point) {
  return (point >= 0x80 && point < 0xA0) || point == 0x061C || point == 0x200E || point == 0x200F ||
         (point >= 0x2028 && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069);
}

std::string escaped_ascii(char c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    // Otherwise a real backslash would look like one of our escapes.
    case '\\':
      return "\\\\";
    default:
      break;
  }
  if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return formatted("\\x%02x", static_cast<unsigned>(c));
  return {c};
}

}  // namespace

std::string display_name(std::string_view bytes) {
  std::string shown;
  while (!bytes.empty()) {
    const int length = utf8_length(bytes);
    const auto used = static_cast<std::size_t>(std::abs(length));
    const std::string_view sequence = bytes.substr(0, used);
    if (length < 0) {
      for (const char c : sequence) shown += formatted("\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else if (length == 1) {
      shown += escaped_ascii(sequence[0]);
    } else if (const unsigned point = code_point(sequence); is_dangerous(point)) {
      shown += formatted("\\u%04x", point);
    } else {
      shown += sequence;
    }
    bytes.remove_prefix(used);
  }
  return shown;
}

std::string to_utf8_lossy(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const int length = utf8_length(bytes);
    const auto used = static_cast<std::size_t>(std::abs(length));
    text += length < 0 ? "\xEF\xBF\xBD" : bytes.substr(0, used);
    bytes.remove_prefix(used);
  }
  return text;
}

}  // namespace millrace
