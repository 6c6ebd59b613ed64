#pragma once

#include <string>
#include <string_view>

namespace millrace {

/// A path, or any bytes, for a message on a terminal. These are escaped as in C (`\n`, `\x1b`, `\u202e`):
/// - control characters and terminal escapes
/// - line and paragraph separators, and bidirectional overrides
/// - bytes that are not UTF-8
/// A backslash is doubled.
std::string display_name(std::string_view bytes);

/// The text with U+FFFD for each maximal part that is not UTF-8, as Unicode recommends.
std::string to_utf8_lossy(std::string_view bytes);

}  // namespace millrace
