#include <doctest/doctest.h>

#include "io/decode/exif.hpp"
#include "tests/io/decode/decode_inputs.hpp"

using namespace millrace;
using namespace millrace::test;

TEST_CASE("exif: orientations 1 to 8 are read in both byte orders, any other value counts as 1") {
  for (const bool big_endian : {false, true}) {
    for (std::uint32_t value = 0; value < 20; ++value) {
      CHECK(exif_orientation(exif_block(value, big_endian)) ==
            (value >= 1 && value <= 8 ? static_cast<int>(value) : 1));
    }
    CHECK(exif_orientation(exif_block(65535, big_endian)) == 1);
    CHECK(exif_orientation(exif_block(6, big_endian, 0x0113)) == 1);     // another tag
    CHECK(exif_orientation(exif_block(6, big_endian, 0x0112, 4)) == 1);  // another type
  }
}

TEST_CASE("exif: a cut block, or an offset outside of it, gives orientation 1 and no read beyond the block") {
  const File block = exif_block(6);
  for (std::size_t size = 0; size < block.size(); ++size) {
    const File shorter = cut(block, size);
    CHECK(exif_orientation(shorter) == (size >= 20 ? 6 : 1));
  }
  for (const std::uint8_t value : {std::uint8_t{7}, std::uint8_t{20}, std::uint8_t{255}}) {
    for (std::size_t at = 4; at < 8; ++at) {
      File lost = block;
      lost[at] = value;
      CHECK(exif_orientation(lost) == 1);
    }
  }
  File endless = block;
  endless[8] = endless[9] = 255;  // claims 65,535 tags
  endless[10] = 0;
  CHECK(exif_orientation(endless) == 1);
  CHECK(exif_orientation({}) == 1);
}

TEST_CASE("exif: in a JPEG any APP1 segment may have the block, and a broken block is ignored") {
  const Rgb picture = ramp(24, 16);
  const File file = make_jpeg(picture, {.exif = exif_block(5)});
  CHECK(jpeg_orientation(file) == 5);
  for (std::size_t size = 0; size < file.size(); ++size) CHECK_NOTHROW(jpeg_orientation(cut(file, size)));
  const File other{0xFF, 0xE1, 0, 8, 'h', 't', 't', 'p', ':', '/'};
  File late = file;
  late.insert(late.begin() + 2, other.begin(), other.end());
  CHECK(jpeg_orientation(late) == 5);
  File padded = file;
  padded.insert(padded.begin() + 2, 3, 0xFF);
  CHECK(jpeg_orientation(padded) == 5);
  for (const std::uint32_t bad : {0U, 9U, 65535U}) {
    const Decoded decoded = decode_file(make_jpeg(picture, {.exif = exif_block(bad)}));
    CHECK(decoded.info.orientation == 1);
    CHECK(decoded.info.width == 24);
  }
}

TEST_CASE("exif: pictures are turned once, for all eight orientations, reduced or not") {
  for (const auto& [width, height] :
       std::initializer_list<std::pair<int, int>>{{1, 1}, {1, 5}, {5, 1}, {24, 16}, {37, 53}, {100, 70}}) {
    const Rgb picture = ramp(width, height);
    for (int orientation = 1; orientation <= 8; ++orientation) {
      const File file =
          make_jpeg(picture, {.subsampled = false, .exif = exif_block(static_cast<std::uint32_t>(orientation))});
      const Rgb display = reference_orient(plain_libjpeg(file), orientation);
      for (const std::int64_t slab : {1 << 20, 5000, 1200, 300, 3}) {
        CAPTURE(width);
        CAPTURE(orientation);
        CAPTURE(slab);
        const Decoded decoded = decode_file(file, {.slab_bytes = slab});
        CHECK(decoded.info.width == display.width);
        CHECK(decoded.info.height == display.height);
        CHECK(decoded.info.pixel_bytes <= slab);
        CHECK(pixels_of(decoded) == reference_reduce(display, decoded.info.reduction));
      }
    }
  }
}
