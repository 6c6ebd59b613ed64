#include "io/decode/plain_jpeg.hpp"

#include <cstring>
#include <optional>
#include <string_view>

#include "io/decode/decode_bytes.hpp"

namespace millrace {
namespace {

using namespace std::string_view_literals;

constexpr std::uint64_t components_at = 5;  // in a frame header: their number

/// A baseline frame of 8 bits whose components are grey, or Y, Cb and Cr.
bool is_plain_frame(Bytes frame) {
  constexpr std::uint64_t first_id_at = 6, id_step = 3;
  const auto count = number(frame, components_at, 1, true);
  if (number(frame, 0, 1, true) != 8U || (count != 1U && count != 3U)) return false;
  // Other ids may mean RGB, about which decoders differ.
  for (std::uint32_t i = 0; *count == 3 && i < 3; ++i) {
    if (number(frame, first_id_at + id_step * i, 1, true) != i + 1) return false;
  }
  return true;
}

/// Whether the first marker in the data of a scan, apart from restarts, is the end of the picture.
bool ends_after_scan(Bytes data) {
  while (true) {
    const auto* found =
        data.empty() ? nullptr : static_cast<const std::uint8_t*>(std::memchr(data.data(), 0xFF, data.size()));
    if (found == nullptr) return false;
    data = data.subspan(static_cast<std::size_t>(found - data.data()) + 1);
    if (data.empty()) return false;
    const std::uint8_t code = data.front();
    const bool is_data = code == 0 || code == 0xFF || (code >= 0xD0 && code <= 0xD7);
    if (!is_data) return code == 0xD9;
  }
}

}  // namespace

bool is_plain_jpeg(std::span<const std::uint8_t> jpeg) {
  if (!has(jpeg, 0, "\xFF\xD8"sv)) return false;
  std::optional<std::uint32_t> components;  // of the frame
  std::uint64_t at = 2;
  while (const auto marker = number(jpeg, at, 2, true)) {
    if (*marker == 0xFFFF) {  // fill byte
      ++at;
      continue;
    }
    const auto length = number(jpeg, at + 2, 2, true);
    if (!length || *length < 2) return false;
    const Bytes payload = slice(jpeg, at + 4, *length - 2);
    at += 2 + *length;
    switch (*marker) {
      case 0xFFC0:  // a baseline frame
        if (components || !is_plain_frame(payload)) return false;
        components = number(payload, components_at, 1, true);
        break;
      case 0xFFDA:  // a scan
        return components && number(payload, 0, 1, true) == components && ends_after_scan(slice(jpeg, at));
      case 0xFFEE:  // Adobe's marker; its transform 0 means RGB
        if (has(payload, 0, "Adobe"sv) && number(payload, 11, 1, true) == 0U) return false;
        break;
      case 0xFFC4:  // Huffman tables
      case 0xFFDB:  // quantisation tables
      case 0xFFDD:  // distance of restarts
      case 0xFFFE:  // comment
        break;
      default:
        if (*marker < 0xFFE0 || *marker > 0xFFEF) return false;  // no note of an application
    }
  }
  return false;
}

}  // namespace millrace
