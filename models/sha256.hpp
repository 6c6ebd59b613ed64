#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace millrace {

/// SHA-256 as 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

/// The same of a file's content, read in pieces. Throws std::system_error when it cannot be read.
std::string sha256_of_file(const std::filesystem::path& file);

}  // namespace millrace
