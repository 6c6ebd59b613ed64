#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace millrace {

/// A baseline JPEG of packed RGB8 rows.
/// Colours have full resolution (4:4:4), because thin coloured lines smear otherwise.
/// Sides have 1 to 65,500 pixels, quality is 1 to 100.
/// Throws std::invalid_argument for other sizes, std::runtime_error if the library fails.
std::vector<std::uint8_t> encode_jpeg(const std::uint8_t* rgb, int width, int height, int quality);

/// A grey PNG with 8 or 16 bits, row by row from the top. Memory is the compressed file.
/// It is made for label maps, which have large areas of one value.
/// All functions throw std::runtime_error if the library fails.
class GreyPng {
 public:
  /// `bits` is 8 or 16.
  GreyPng(int width, int height, int bits);
  ~GreyPng();
  GreyPng(const GreyPng&) = delete;
  GreyPng& operator=(const GreyPng&) = delete;
  /// The next row: `width` values in the byte order of the host.
  void add_row(const void* values);
  /// The file. Call it after the last row.
  std::vector<std::uint8_t> finish();

 private:
  struct Encoder;
  const std::unique_ptr<Encoder> encoder_;
  const std::size_t row_bytes_;
  int rows_left_;
};

}  // namespace millrace
