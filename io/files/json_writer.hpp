#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

/// Appends JSON to a string. The writer places the commas; the caller opens and closes objects and arrays.
/// The text depends on the values alone, never on the locale.
/// Bytes that are not UTF-8 become U+FFFD, one for each maximal ill-formed part, as Unicode recommends.
///
///     json.begin_object().key("id").value(17).key("box").begin_array()...end_array().end_object();
class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  /// Integers must be in the range of std::int64_t.
  JsonWriter& value(std::integral auto number) {
    if constexpr (std::same_as<decltype(number), bool>) {
      return literal(number ? "true" : "false");
    } else {
      return integer(static_cast<std::int64_t>(number));
    }
  }
  JsonWriter& null() { return literal("null"); }

  /// The shortest text that reads back as the same number.
  /// Throws std::domain_error for NaN and infinity, which JSON lacks.
  JsonWriter& value(float number);
  JsonWriter& value(double number);
  /// Rounded to `decimals` (0 to 9), halves away from zero, without trailing zeros. Throws as value() does.
  JsonWriter& rounded(double number, int decimals);

  /// Text that is a value already: JSON, or a placeholder that later code replaces with JSON.
  JsonWriter& verbatim(std::string_view text) { return literal(text); }

  /// The text written so far.
  std::string_view text() const { return text_; }
  /// Takes the whole text and leaves an empty writer. Throws std::logic_error while an object or array is open.
  std::string take();

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& integer(std::int64_t number);
  JsonWriter& literal(std::string_view text);
  void separate() {
    if (comma_) text_ += ", ";
  }
  void append_string(std::string_view text);
  void check_finite(double number) const;

  std::string text_;
  bool comma_ = false;  // whether the next value or key needs a comma in front
  int depth_ = 0;
};

/// The length of the UTF-8 sequence at the front of `text`, which is not empty.
/// If it is ill-formed: minus the length of its maximal part that could begin a sequence, at least one byte.
int utf8_length(std::string_view text);

bool is_utf8(std::string_view text);

}  // namespace millrace
