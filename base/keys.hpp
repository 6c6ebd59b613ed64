#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string_view>

namespace millrace {

/// The keys that one writer puts into a JSON object.
/// The writer and the code that must avoid these keys use the same list. A key outside the list does not compile:
///
///     inline constexpr Keys head_keys{"id", "path"};
///     json.key(head_keys("id"));
template <std::size_t N>
struct Keys {
  std::array<std::string_view, N> names;

  consteval std::string_view operator()(std::string_view name) const {
    for (const std::string_view known : names) {
      if (known == name) return known;
    }
    throw std::logic_error("the key is not in the list");
  }

  constexpr std::span<const std::string_view> all() const { return names; }
};

template <class... Names>
Keys(Names...) -> Keys<sizeof...(Names)>;

}  // namespace millrace
