#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// Bytes for people, in powers of 1000: "999 B", "2.5 MB", "80.0 GB".
std::string readable_bytes(double bytes);

/// Bytes as options take them, in powers of 1024: 65536 as "64k", 1000 as "1000".
std::string option_bytes(std::int64_t bytes);

/// 1234567 as "1,234,567".
std::string grouped(std::int64_t number);

/// "1 picture", "1,234 pictures". `many` is for words whose plural is not `one` and an s.
std::string count_of(std::int64_t number, std::string_view one, std::string_view many = {});

/// "a, b and c".
std::string listed(const std::vector<std::string>& words);

}  // namespace millrace
