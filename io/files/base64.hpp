#pragma once

#include <string>
#include <string_view>

namespace millrace {

/// Base64 with padding and without line breaks (RFC 4648), by OpenSSL.
std::string to_base64(std::string_view bytes);

/// Throws std::invalid_argument if to_base64() would not make this text.
std::string from_base64(std::string_view text);

}  // namespace millrace
