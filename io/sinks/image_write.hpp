#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace millrace {

/// A baseline JPEG of packed RGB8 rows.
/// Colours have full resolution (4:4:4), because thin coloured lines smear otherwise.
/// Sides have 1 to 65,500 pixels, quality is 1 to 100.
/// Throws std::invalid_argument for other sizes, std::runtime_error if the library fails.
std::vector<std::uint8_t> encode_jpeg(const std::uint8_t* rgb, int width, int height, int quality);

/// Fills row `y` of a picture, in host byte order.
using Grey8Row = std::function<void(int y, std::span<std::uint8_t> row)>;
using Grey16Row = std::function<void(int y, std::span<std::uint16_t> row)>;

/// An 8-bit or 16-bit grey PNG. It asks for the rows one by one, from the top. Memory is one row and the compressed file.
/// It is made for label maps, which have large areas of one value.
/// Throws std::runtime_error if the library fails.
std::vector<std::uint8_t> encode_grey8_png(int width, int height, const Grey8Row& fill_row);
std::vector<std::uint8_t> encode_grey16_png(int width, int height, const Grey16Row& fill_row);

}  // namespace millrace
