#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// Formats bytes for people, in units of 1000: "999 B", "2.5 MB", "80.0 GB".
std::string readable_bytes(double bytes);

/// Formats bytes as options accept them, in units of 1024: 65536 as "64k".
/// A number that is no multiple of 1024 has no unit: 1000 as "1000".
std::string option_bytes(std::int64_t bytes);

/// Formats a number with separators: 1234567 as "1,234,567".
std::string grouped(std::int64_t number);

/// Formats a number and its noun: "1 picture", "1,234 pictures".
/// Pass `many` if the plural is not `one` plus an s.
std::string count_of(std::int64_t number, std::string_view one, std::string_view many = {});

/// Joins words: "a, b and c".
std::string listed(const std::vector<std::string>& words);

}  // namespace millrace
