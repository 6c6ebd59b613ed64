#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// COCO run lengths: counts of 0, 1, 0, 1, ... pixels down the columns. The first count may be 0.
// COCO files contain them as a string, in the format of cocoapi's maskApi. So pycocotools reads our strings, and we
// read its strings.

/// The string of the counts. From the fourth on, a count is written as the difference from the count two before it.
/// A number is written in groups of 5 bits, lowest group first. Each group is a character from '0' on.
/// The sixth bit of a group says whether another group follows.
std::string rle_to_string(std::span<const std::uint32_t> counts);

/// The counts of a width x height mask. Throws std::invalid_argument, which names the place, for
/// - characters outside the alphabet
/// - a string that ends inside a number
/// - negative or oversized counts
/// - a sum other than width * height
std::vector<std::uint32_t> rle_from_string(std::string_view text, int width, int height);

/// Counts of a row-major raster of width * height bytes. Every value but 0 is inside.
std::vector<std::uint32_t> rle_encode(std::span<const std::uint8_t> raster, int width, int height);

/// The row-major raster, 0 or 1 for each pixel. Throws std::invalid_argument if the sum is not width * height.
std::vector<std::uint8_t> rle_decode(std::span<const std::uint32_t> counts, int width, int height);

/// The number of pixels inside.
std::int64_t rle_area(std::span<const std::uint32_t> counts);

/// The number of pixels that are inside both masks. Takes one step for each run. Both have the same size.
std::int64_t rle_intersection(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b);

}  // namespace millrace
