#include "io/results/rle.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace millrace {

namespace {

constexpr unsigned char first_character = 48;  // '0'; 6 bits follow, so the last is 'o'
constexpr unsigned more_bit = 0x20, sign_bit = 0x10, value_bits = 0x1f;
constexpr int longest_number = 7;  // groups of 5 bits: a 32-bit difference with its sign

[[noreturn]] void fail(const std::string& what) { throw std::invalid_argument("run lengths: " + what); }

std::uint64_t pixels_of(int width, int height) {
  if (width < 1 || height < 1) fail("a mask of " + std::to_string(width) + "x" + std::to_string(height));
  return static_cast<std::uint64_t>(width) * static_cast<std::uint64_t>(height);
}

void check_sum(std::span<const std::uint32_t> counts, int width, int height) {
  std::uint64_t sum = 0;
  for (const std::uint32_t count : counts) sum += count;
  if (sum != pixels_of(width, height)) {
    fail("they sum to " + std::to_string(sum) + ", a mask of " + std::to_string(width) + "x" + std::to_string(height) +
         " has " + std::to_string(pixels_of(width, height)) + " pixels");
  }
}

}  // namespace

std::string rle_to_string(std::span<const std::uint32_t> counts) {
  std::string text;
  text.reserve(2 * counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    std::int64_t value = counts[i];
    // cocoapi also writes the third count whole, although a count two before it exists.
    if (i > 2) value -= counts[i - 2];
    bool more = true;
    while (more) {
      auto group = static_cast<unsigned>(value & value_bits);
      value >>= 5;
      // A number ends when all bits left are copies of the sign bit. The reader extends that bit.
      more = (group & sign_bit) != 0 ? value != -1 : value != 0;
      if (more) group |= more_bit;
      text.push_back(static_cast<char>(group + first_character));
    }
  }
  return text;
}

std::vector<std::uint32_t> rle_from_string(std::string_view text, int width, int height) {
  std::vector<std::uint32_t> counts;
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t start = position;
    std::int64_t value = 0;
    for (int group_index = 0, shift = 0;; ++group_index, shift += 5) {
      if (position == text.size()) fail("the string ends inside the number at character " + std::to_string(start));
      if (group_index == longest_number) fail("the number at character " + std::to_string(start) + " is too long");
      const unsigned group = static_cast<unsigned char>(text[position]) - first_character;
      if (group > (more_bit | value_bits)) {
        fail("character " + std::to_string(position) + " is outside the alphabet '0' to 'o'");
      }
      ++position;
      value |= static_cast<std::int64_t>(group & value_bits) << shift;
      if ((group & more_bit) != 0) continue;
      if ((group & sign_bit) != 0) value -= std::int64_t{1} << (shift + 5);
      break;
    }
    if (counts.size() > 2) value += counts[counts.size() - 2];
    if (value < 0 || value > std::numeric_limits<std::uint32_t>::max()) {
      fail("count " + std::to_string(counts.size()) + " is " + std::to_string(value));
    }
    counts.push_back(static_cast<std::uint32_t>(value));
  }
  check_sum(counts, width, height);
  return counts;
}

std::vector<std::uint32_t> rle_encode(std::span<const std::uint8_t> raster, int width, int height) {
  if (raster.size() != pixels_of(width, height)) {
    fail("a raster of " + std::to_string(raster.size()) + " bytes for a mask of " + std::to_string(width) + "x" +
         std::to_string(height));
  }
  if (raster.size() > std::numeric_limits<std::uint32_t>::max()) fail("a mask of more than 2^32 - 1 pixels");
  // Runs begin with pixels outside, so a mask that covers the first pixel has a first count of 0.
  std::vector<std::uint32_t> counts{0};
  bool inside = false;
  for (std::size_t x = 0; x < static_cast<std::size_t>(width); ++x) {
    for (std::size_t i = x; i < raster.size(); i += static_cast<std::size_t>(width)) {
      if ((raster[i] != 0) != inside) {
        counts.push_back(0);
        inside = !inside;
      }
      ++counts.back();
    }
  }
  return counts;
}

std::vector<std::uint8_t> rle_decode(std::span<const std::uint32_t> counts, int width, int height) {
  check_sum(counts, width, height);
  std::vector<std::uint8_t> raster(static_cast<std::size_t>(pixels_of(width, height)));
  const auto rows = static_cast<std::uint64_t>(height), stride = static_cast<std::uint64_t>(width);
  std::uint64_t position = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::uint64_t end = position + counts[i];
    if (i % 2 == 1) {
      // Runs go down the columns, the raster along the rows.
      std::uint64_t x = position / rows, y = position % rows;
      for (; position < end; ++position) {
        raster[y * stride + x] = 1;
        if (++y == rows) {
          y = 0;
          ++x;
        }
      }
    }
    position = end;
  }
  return raster;
}

std::int64_t rle_area(std::span<const std::uint32_t> counts) {
  std::int64_t area = 0;
  for (std::size_t i = 1; i < counts.size(); i += 2) area += counts[i];
  return area;
}

std::int64_t rle_intersection(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b) {
  std::int64_t shared = 0, position = 0;
  std::size_t in_a = 0, in_b = 0;
  std::int64_t end_a = a.empty() ? 0 : a[0], end_b = b.empty() ? 0 : b[0];
  while (in_a < a.size() && in_b < b.size()) {
    const std::int64_t end = std::min(end_a, end_b);
    if (in_a % 2 == 1 && in_b % 2 == 1) shared += end - position;
    position = end;
    if (end_a == end && ++in_a < a.size()) end_a += a[in_a];
    if (end_b == end && ++in_b < b.size()) end_b += b[in_b];
  }
  return shared;
}

}  // namespace millrace
