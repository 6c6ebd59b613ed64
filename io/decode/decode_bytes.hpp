#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace millrace {

using Bytes = std::span<const std::uint8_t>;

/// At most `count` bytes of `bytes`, from `offset` on. Fewer or none at the end, never out of bounds.
inline Bytes slice(Bytes bytes, std::uint64_t offset, std::uint64_t count = ~std::uint64_t{0}) {
  if (offset >= bytes.size()) return {};
  const std::uint64_t rest = bytes.size() - offset;
  return bytes.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count < rest ? count : rest));
}

/// Whether `text` is at `offset`.
inline bool has(Bytes bytes, std::uint64_t offset, std::string_view text) {
  const Bytes part = slice(bytes, offset, text.size());
  return part.size() == text.size() && std::memcmp(part.data(), text.data(), text.size()) == 0;
}

/// An unsigned number of `size` (1 to 4) bytes at `offset`; nothing if it is out of bounds.
inline std::optional<std::uint32_t> number(Bytes bytes, std::uint64_t offset, int size, bool big_endian) {
  const Bytes part = slice(bytes, offset, static_cast<std::uint64_t>(size));
  if (part.size() != static_cast<std::size_t>(size)) return std::nullopt;
  std::uint32_t value = 0;
  for (int i = 0; i < size; ++i) value = value << 8 | part[static_cast<std::size_t>(big_endian ? i : size - 1 - i)];
  return value;
}

}  // namespace millrace
