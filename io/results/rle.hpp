#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// COCO run lengths: counts of 0, 1, 0, 1, ... pixels down the columns, the first may be 0; and the string that COCO
// files hold. The format is that of cocoapi's maskApi; pycocotools reads what is written here and the other way round.

/// The string: each count, from the fourth on less the one two before it, in groups of 5 bits, lowest first, with a bit
/// for "more follows", written from '0' up.
std::string rle_to_string(std::span<const std::uint32_t> counts);

/// The counts of a width x height mask. Throws std::invalid_argument, naming the place, on characters outside the
/// alphabet, a string that ends inside a number, negative or oversized counts, and a sum other than width * height.
std::vector<std::uint32_t> rle_from_string(std::string_view text, int width, int height);

/// Counts of a row-major raster of width * height bytes; any value but 0 is inside.
std::vector<std::uint32_t> rle_encode(std::span<const std::uint8_t> raster, int width, int height);

/// The row-major raster, 0 or 1 a pixel. Throws std::invalid_argument when the counts do not sum to width * height.
std::vector<std::uint8_t> rle_decode(std::span<const std::uint32_t> counts, int width, int height);

/// Pixels inside.
std::int64_t rle_area(std::span<const std::uint32_t> counts);

}  // namespace millrace
