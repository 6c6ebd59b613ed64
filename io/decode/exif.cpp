#include "io/decode/exif.hpp"

#include <string_view>

#include "io/decode/decode_bytes.hpp"

namespace millrace {

using namespace std::string_view_literals;

int exif_orientation(std::span<const std::uint8_t> tiff) {
  constexpr std::uint32_t orientation_tag = 0x0112, type_short = 3;
  const bool big_endian = has(tiff, 0, "MM\0*"sv);
  if (!big_endian && !has(tiff, 0, "II*\0"sv)) return 1;
  const auto directory = number(tiff, 4, 4, big_endian);
  if (!directory) return 1;
  const auto count = number(tiff, *directory, 2, big_endian);
  if (!count) return 1;
  for (std::uint32_t i = 0; i < *count; ++i) {
    const std::uint64_t entry = std::uint64_t{*directory} + 2 + std::uint64_t{12} * i;
    const auto tag = number(tiff, entry, 2, big_endian);
    if (!tag) return 1;
    if (*tag != orientation_tag) continue;
    const auto type = number(tiff, entry + 2, 2, big_endian);
    const auto value = number(tiff, entry + 8, 2, big_endian);
    return type == type_short && value && *value >= 1 && *value <= 8 ? static_cast<int>(*value) : 1;
  }
  return 1;
}

int jpeg_orientation(std::span<const std::uint8_t> jpeg) {
  std::uint64_t at = 2;
  while (const auto marker = number(jpeg, at, 2, true)) {
    if (*marker == 0xFFFF) {  // fill byte
      ++at;
      continue;
    }
    if (*marker < 0xFFC0 || *marker == 0xFFDA || *marker == 0xFFD9) break;  // no marker, a scan, the end
    if (*marker >= 0xFFD0 && *marker <= 0xFFD8) {                           // no payload
      at += 2;
      continue;
    }
    const auto length = number(jpeg, at + 2, 2, true);
    if (!length || *length < 2) break;
    const auto payload = slice(jpeg, at + 4, *length - 2);
    if (*marker == 0xFFE1 && has(payload, 0, "Exif\0\0"sv)) return exif_orientation(slice(payload, 6));
    at += 2 + *length;
  }
  return 1;
}

}  // namespace millrace
