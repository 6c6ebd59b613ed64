#include "io/files/json_writer.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace millrace {
namespace {

constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

// Bytes that a JSON string contains unchanged. All others are escaped, or belong to a sequence that must be checked.
constexpr std::array<bool, 256> plain = [] {
  std::array<bool, 256> table{};
  for (std::size_t byte = 0x20; byte < 0x80; ++byte) table[byte] = byte != '"' && byte != '\\';
  return table;
}();

constexpr unsigned byte_at(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

void append_escaped(std::string& out, unsigned byte) {
  constexpr std::string_view digits = "0123456789abcdef";
  out += '\\';
  switch (byte) {
    case '"':
      out += '"';
      break;
    case '\\':
      out += '\\';
      break;
    case '\b':
      out += 'b';
      break;
    case '\f':
      out += 'f';
      break;
    case '\n':
      out += 'n';
      break;
    case '\r':
      out += 'r';
      break;
    case '\t':
      out += 't';
      break;
    default:
      out += "u00", out += digits[byte >> 4], out += digits[byte & 15];
  }
}

template <class T>
void append_number(std::string& out, T number) {
  std::array<char, 32> buffer;
  // to_chars ignores the locale and gives the shortest text that reads back as the same number.
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr;
  out.append(buffer.data(), end);
}

}  // namespace

int utf8_length(std::string_view text) {
  const unsigned lead = byte_at(text, 0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return -1;
  // Table 3-7 of the Unicode standard: only the bounds of the second byte depend on the first.
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (int i = 1; i < length; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (at >= text.size()) return -i;
    const unsigned byte = byte_at(text, at);
    if (byte < (i == 1 ? low : 0x80) || byte > (i == 1 ? high : 0xBF)) return -i;
  }
  return length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const int length = utf8_length(text);
    if (length < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(length));
  }
  return true;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  append_string(name);
  text_ += ": ";
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  append_string(text);
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(float number) {
  check_finite(number);
  separate();
  append_number(text_, number);
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(double number) {
  check_finite(number);
  separate();
  append_number(text_, number);
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::rounded(double number, int decimals) {
  constexpr std::array<std::int64_t, 10> powers{1,       10,        100,        1'000,       10'000,
                                                100'000, 1'000'000, 10'000'000, 100'000'000, 1'000'000'000};
  check_finite(number);
  const std::int64_t power = powers.at(static_cast<std::size_t>(decimals));
  const double scaled = std::round(number * static_cast<double>(power));
  if (std::abs(scaled) >= 9007199254740992.0) return value(number);  // above 2^53 there are no decimals left to round
  // Written as integers, so the text never has an exponent.
  const auto units = static_cast<std::int64_t>(scaled);
  separate();
  if (units < 0) text_ += '-';
  append_number(text_, std::abs(units) / power);
  if (std::int64_t fraction = std::abs(units) % power; fraction != 0) {
    text_ += '.';
    for (std::int64_t digit = power / 10; fraction != 0; digit /= 10) {
      text_ += static_cast<char>('0' + fraction / digit);
      fraction %= digit;
    }
  }
  comma_ = true;
  return *this;
}

std::string JsonWriter::take() {
  if (depth_ != 0) throw std::logic_error("JSON text taken with " + std::to_string(depth_) + " objects or arrays open");
  comma_ = false;
  return std::exchange(text_, {});
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  text_ += bracket;
  comma_ = false;
  ++depth_;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  if (--depth_ < 0) throw std::logic_error("JSON object or array closed that was never opened");
  text_ += bracket;
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::integer(std::int64_t number) {
  separate();
  append_number(text_, number);
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::literal(std::string_view text) {
  separate();
  text_ += text;
  comma_ = true;
  return *this;
}

void JsonWriter::append_string(std::string_view text) {
  text_ += '"';
  while (!text.empty()) {
    std::size_t run = 0;
    while (run < text.size() && plain[byte_at(text, run)]) ++run;
    text_.append(text.data(), run);
    text.remove_prefix(run);
    if (text.empty()) break;
    const int length = utf8_length(text);
    if (length == 1) {
      append_escaped(text_, byte_at(text, 0));
    } else if (length > 1) {
      text_.append(text.data(), static_cast<std::size_t>(length));
    } else {
      text_ += replacement_character;
    }
    text.remove_prefix(static_cast<std::size_t>(std::abs(length)));
  }
  text_ += '"';
}

void JsonWriter::check_finite(double number) const {
  if (std::isfinite(number)) return;
  // The last 60 bytes normally contain the key, so the message shows which value it is.
  const std::string_view before = text();
  const std::string_view tail = before.substr(before.size() > 60 ? before.size() - 60 : 0);
  throw std::domain_error("a value is NaN or infinite, which JSON cannot contain; it would follow this text: " +
                          std::string(tail));
}

}  // namespace millrace
