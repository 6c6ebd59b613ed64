#include "io/decode/plain_jpeg.hpp"

#include <doctest/doctest.h>

#include "tests/io/decode/decode_inputs.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

constexpr std::uint8_t frame = 0xC0, scan = 0xDA;

File with_byte(File file, std::size_t at, std::uint8_t value) {
  file.at(at) = value;
  return file;
}

/// The file with a segment behind its first marker.
File with_segment(const File& file, std::uint8_t code, const File& payload) {
  const auto size = static_cast<std::uint8_t>(payload.size() + 2);
  return cut(file, 2) + File{0xFF, code, 0, size} + payload + File(file.begin() + 2, file.end());
}

}  // namespace

TEST_CASE("plain JPEG: baseline, grey or YCbCr, with and without restarts and EXIF") {
  const Rgb picture = ramp(64, 48);
  for (const int components : {1, 3}) {
    for (const bool subsampled : {false, true}) {
      for (const int restart_rows : {0, 1})
        CHECK(is_plain_jpeg(
            make_jpeg(picture, {.components = components, .subsampled = subsampled, .restart_rows = restart_rows})));
    }
  }
  const File file = make_jpeg(picture, {.exif = exif_block(6)});
  CHECK(is_plain_jpeg(file));
  CHECK(is_plain_jpeg(file + bytes_of("more data")));
  CHECK(is_plain_jpeg(with_segment(file, 0xFE, bytes_of("a comment"))));
  const File adobe_ycc = bytes_of("Adobe") + File{0, 100, 0, 0, 0, 0, 1};
  CHECK(is_plain_jpeg(with_segment(file, 0xEE, adobe_ycc)));
}

TEST_CASE("plain JPEG: other kinds are not") {
  const Rgb picture = ramp(64, 48);
  CHECK(!is_plain_jpeg(make_jpeg(picture, {.progressive = true})));
  CHECK(!is_plain_jpeg(make_jpeg(picture, {.arithmetic = true})));
  CHECK(!is_plain_jpeg(make_jpeg(picture, {.components = 4})));
  CHECK(!is_plain_jpeg(make_jpeg(picture, {.components = 4, .ycck = true})));
  CHECK(!is_plain_jpeg(make_png(picture)));
  CHECK(!is_plain_jpeg({}));
  const File file = make_jpeg(picture);
  const std::size_t header = find_marker(file, frame);
  CHECK(!is_plain_jpeg(with_byte(file, header - 1, 0xC1)));  // extended
  CHECK(!is_plain_jpeg(with_byte(file, header + 2, 12)));    // bits
  CHECK(!is_plain_jpeg(with_byte(file, header + 8, 'R')));   // id of the first component
  const File adobe_rgb = bytes_of("Adobe") + File{0, 100, 0, 0, 0, 0, 0};
  CHECK(!is_plain_jpeg(with_segment(file, 0xEE, adobe_rgb)));
  CHECK(!is_plain_jpeg(with_segment(file, 0xCC, {0, 0})));                             // arithmetic tables
  CHECK(!is_plain_jpeg(with_segment(file, frame, {8, 0, 48, 0, 64, 1, 1, 0x11, 0})));  // a second frame
  CHECK(!is_plain_jpeg(with_byte(file, find_marker(file, scan) + 2, 1)));  // a scan of one of the components
}

TEST_CASE("plain JPEG: the end marker must follow the scan") {
  const File file = make_jpeg(ramp(64, 48), {.restart_rows = 1});
  const std::size_t data = find_marker(file, scan);
  for (std::size_t size = 0; size < file.size(); ++size) {
    CAPTURE(size);
    REQUIRE(!is_plain_jpeg(cut(file, size)));
  }
  const File end{0xFF, 0xD9};
  CHECK(is_plain_jpeg(cut(file, file.size() - 2) + File{0xFF} + end));  // a fill byte
  CHECK(!is_plain_jpeg(cut(file, file.size() - 2) +
                       File(file.begin() + static_cast<std::ptrdiff_t>(data) - 2, file.end())));  // a second scan
}
