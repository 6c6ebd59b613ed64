// Formats that OpenCV's imgcodecs decodes, and the failure without it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "io/decode/decode_headers.hpp"
#include "io/decode/imgcodecs.hpp"
#include "tests/io/decode/decode_checks.hpp"
#include "tests/io/decode/decode_inputs.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

/// Whether this machine can decode BMP, WebP, TIFF, PNM and JPEG 2000. Prints the problem if not.
bool has_plugin() {
  const std::string problem = check_imgcodecs_plugin();
  if (!problem.empty()) MESSAGE("skipped: ", problem);
  return problem.empty();
}

// Files of 9 x 6 pixels, written by Pillow 12: a few lines of code cannot make these formats.
const File webp_alpha{82,  73,  70,  70,  60, 0,   0,   0,   87,  69,  66,  80,  86,  80,  56,  76,  48,
                      0,   0,   0,   47,  8,  64,  1,   16,  185, 50,  68,  244, 63,  118, 17,  209, 255,
                      128, 130, 182, 109, 36, 99,  26,  127, 118, 255, 29,  130, 225, 16,  8,   36,  251,
                      179, 230, 176, 64,  32, 133, 237, 250, 4,   48,  201, 74,  235, 16,  210, 254, 1};
const File webp_lossy{82,  73,  70,  70,  52,  0,   0,   0,  87,  69,  66, 80,  86,  80,  56,  32,  40,  0,   0,   0,
                      80,  1,   0,   157, 1,   42,  9,   0,  6,   0,   0,  192, 18,  37,  160, 0,   4,   51,  128, 0,
                      254, 247, 196, 35,  255, 254, 207, 47, 255, 251, 60, 191, 255, 236, 242, 255, 236, 216, 0,   0};
const File webp_turned{82,  73,  70,  70, 102, 0,   0,   0,   87,  69,  66, 80,  86,  80, 56,  88,  10, 0,   0,
                       0,   8,   0,   0,  0,   8,   0,   0,   5,   0,   0,  86,  80,  56, 76,  38,  0,  0,   0,
                       47,  8,   64,  1,  0,   185, 140, 232, 127, 236, 34, 162, 255, 1,  133, 108, 35, 64,  199,
                       116, 254, 122, 63, 193, 112, 8,   4,   146, 252, 89, 119, 56,  38, 0,   198, 36, 249, 2,
                       69,  88,  73,  70, 26,  0,   0,   0,   77,  77,  0,  42,  0,   0,  0,   8,   0,  1,   1,
                       18,  0,   3,   0,  0,   0,   1,   0,   6,   0,   0,  0,   0,   0,  0};
const File webp_animated{
    82,  73,  70,  70,  26,  1,   0,   0,   87,  69,  66,  80,  86,  80,  56,  88,  10,  0,   0,   0,   18,  0,   0,
    0,   8,   0,   0,   5,   0,   0,   65,  78,  73,  77,  6,   0,   0,   0,   0,   0,   0,   0,   0,   0,   65,  78,
    77,  70,  134, 0,   0,   0,   0,   0,   0,   0,   0,   0,   8,   0,   0,   5,   0,   0,   0,   0,   0,   2,   86,
    80,  56,  76,  109, 0,   0,   0,   47,  8,   64,  1,   16,  127, 161, 168, 109, 27,  168, 175, 0,   10,  127, 120,
    59,  25,  24,  100, 27,  169, 32,  119, 255, 239, 207, 241, 96,  4,   217, 54,  117, 190, 208, 1,   7,   33,  16,
    72,  113, 86,  11,  221, 133, 252, 22,  66,  8,   65,  186, 28,  247, 202, 145, 252, 78,  128, 129, 36,  73,  134,
    163, 235, 61,  219, 182, 209, 17,  253, 15,  39,  42,  186, 229, 2,   81,  110, 92,  246, 235, 13,  170, 189, 164,
    26,  182, 7,   204, 240, 211, 122, 220, 95,  112, 51,  200, 154, 233, 248, 32,  172, 48,  111, 231, 243, 135, 180,
    1,   0,   65,  78,  77,  70,  96,  0,   0,   0,   0,   0,   0,   0,   0,   0,   8,   0,   0,   5,   0,   0,   0,
    0,   0,   2,   86,  80,  56,  76,  72,  0,   0,   0,   47,  8,   64,  1,   16,  143, 32,  36,  32,  18,  131, 252,
    127, 231, 132, 130, 180, 13,  88,  24,  33,  59,  2,   129, 36,  127, 138, 1,   135, 16,  8,   164, 56,  171, 133,
    78,  94,  97,  243, 97,  243, 97,  40,  104, 35,  73,  185, 123, 102, 24,  255, 114, 87,  68,  68,  255, 3,   0,
    254, 204, 250, 70,  210, 219, 163, 158, 22,  116, 87,  215, 85,  12};
const File jpeg2000{
    255, 79,  255, 81,  0,   47,  0,   0,   0,   0,   0,   9,   0,   0,   0,   6,   0,   0,   0,   0,   0,   0,   0,
    0,   0,   0,   0,   9,   0,   0,   0,   6,   0,   0,   0,   0,   0,   0,   0,   0,   0,   3,   7,   1,   1,   7,
    1,   1,   7,   1,   1,   255, 82,  0,   12,  0,   0,   0,   1,   0,   0,   4,   4,   0,   1,   255, 92,  0,   4,
    64,  64,  255, 144, 0,   10,  0,   0,   0,   0,   0,   132, 0,   1,   255, 147, 223, 129, 0,   17,  105, 155, 49,
    205, 64,  100, 236, 46,  153, 181, 107, 24,  45,  132, 46,  192, 0,   4,   83,  139, 31,  236, 106, 194, 161, 180,
    75,  246, 129, 35,  15,  223, 129, 64,  18,  141, 148, 121, 171, 27,  215, 93,  147, 13,  143, 146, 97,  175, 13,
    145, 44,  80,  65,  239, 123, 200, 33,  106, 155, 255, 127, 255, 34,  226, 26,  49,  18,  160, 0,   0,   0,   80,
    255, 127, 207, 180, 148, 20,  0,   74,  113, 149, 126, 32,  207, 246, 184, 254, 190, 226, 117, 140, 36,  211, 45,
    125, 120, 52,  181, 199, 223, 151, 221, 181, 66,  224, 104, 6,   87,  60,  179, 226, 255, 127, 255, 217};

/// The picture in these files before alpha. Columns 6 to 8 of webp_alpha have the alpha values 0, 100 and 200.
Rgb nine_by_six(bool alpha) {
  Rgb picture{9, 6, {}};
  for (int y = 0; y < 6; ++y) {
    for (int x = 0; x < 9; ++x) {
      const double a = alpha && x >= 6 ? (x - 6) * 100 / 255.0 : 1;
      for (const int value : {x * 28, y * 50, 255 - x * 20}) {
        picture.data.push_back(static_cast<std::uint8_t>(std::floor(value * a + 255 * (1 - a) + 0.5)));
      }
    }
  }
  return picture;
}

File little(std::initializer_list<std::pair<std::uint32_t, int>> numbers) {
  File file;
  for (const auto& [value, size] : numbers) {
    for (int i = 0; i < size; ++i) file.push_back(static_cast<std::uint8_t>(value >> 8 * i));
  }
  return file;
}

/// A BMP of 24 or 32 bits; the fourth byte is zero.
File make_bmp(const Rgb& picture, int bits, bool top_down) {
  const std::size_t stride = (static_cast<std::size_t>(picture.width) * static_cast<std::size_t>(bits) + 31) / 32 * 4;
  const auto width = static_cast<std::uint32_t>(picture.width), height = static_cast<std::uint32_t>(picture.height);
  File file = bytes_of("BM") + little({{static_cast<std::uint32_t>(54 + stride * height), 4},
                                       {0, 4},
                                       {54, 4},
                                       {40, 4},
                                       {width, 4},
                                       {top_down ? ~height + 1 : height, 4},
                                       {1, 2},
                                       {static_cast<std::uint32_t>(bits), 2},
                                       {0, 4},
                                       {0, 4},
                                       {0, 4},
                                       {0, 4},
                                       {0, 4},
                                       {0, 4}});
  for (int i = 0; i < picture.height; ++i) {
    File row;
    for (int x = 0; x < picture.width; ++x) {
      const std::uint8_t* p = picture.at(x, top_down ? i : picture.height - 1 - i);
      for (const int c : {2, 1, 0}) row.push_back(p[c]);
      if (bits == 32) row.push_back(0);
    }
    row.resize(stride);
    file = file + row;
  }
  return file;
}

struct TiffOptions {
  bool big_endian = false, sixteen = false, alpha = false;
  std::uint32_t orientation = 1, next = 0;
};

/// An uncompressed TIFF of one strip; with alpha, the alpha of pixel (x, y) is 255 - 5 x.
File make_tiff(const Rgb& picture, const TiffOptions& options) {
  File file;
  const auto put = [&](std::uint32_t value, int size) {
    for (int i = 0; i < size; ++i)
      file.push_back(static_cast<std::uint8_t>(value >> 8 * (options.big_endian ? size - 1 - i : i)));
  };
  const auto field = [&](std::uint32_t tag, std::uint32_t type, std::uint32_t count, std::uint32_t value) {
    put(tag, 2);
    put(type, 2);
    put(count, 4);
    const bool is_short = type == 3 && count == 1;
    put(value, is_short ? 2 : 4);
    if (is_short) put(0, 2);
  };
  const std::uint32_t samples = options.alpha ? 4 : 3, sample_bytes = options.sixteen ? 2 : 1,
                      fields = options.alpha ? 12 : 11;
  const std::uint32_t bits_at = 8 + 2 + 12 * fields + 4, data_at = bits_at + 8;
  const auto width = static_cast<std::uint32_t>(picture.width), height = static_cast<std::uint32_t>(picture.height);
  file = bytes_of(options.big_endian ? "MM" : "II");
  put(42, 2);
  put(8, 4);
  put(fields, 2);
  field(256, 4, 1, width);
  field(257, 4, 1, height);
  field(258, 3, samples, bits_at);
  field(259, 3, 1, 1);
  field(262, 3, 1, 2);
  field(273, 4, 1, data_at);
  field(274, 3, 1, options.orientation);
  field(277, 3, 1, samples);
  field(278, 4, 1, height);
  field(279, 4, 1, width * height * samples * sample_bytes);
  field(284, 3, 1, 1);
  if (options.alpha) field(338, 3, 1, 2);
  put(options.next, 4);
  for (int i = 0; i < 4; ++i) put(8 * sample_bytes, 2);
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) {
      for (int c = 0; c < 3; ++c)
        put(options.sixteen ? picture.at(x, y)[c] * 257U + 100 : picture.at(x, y)[c], static_cast<int>(sample_bytes));
      if (options.alpha) put(static_cast<std::uint32_t>(255 - 5 * x), 1);
    }
  }
  return file;
}

}  // namespace

TEST_CASE("decode: BMP, PNM, TIFF, WebP and JPEG 2000 follow the same rules") {
  if (!has_plugin()) return;
  const Rgb picture = ramp(37, 23);
  for (const int bits : {24, 32}) {
    for (const bool top_down : {false, true})
      CHECK(pixels_of(decode_file(make_bmp(picture, bits, top_down))) == picture);
  }
  const File ppm = bytes_of("P6\n# a comment\n37 23\n255\n") + picture.data;
  CHECK(pixels_of(decode_file(ppm)) == picture);
  CHECK(pixels_of(decode_file(ppm, {.slab_bytes = 500})) ==
        reference_reduce(picture, decode_file(ppm, {.slab_bytes = 500}).info.reduction));
  const Rgb grey = pixels_of(decode_file(bytes_of("P5 2 2 65535\n") + File{0, 0, 0x7F, 0xFF, 0x80, 0x80, 0xFF, 0x80}));
  CHECK(grey.data == File{0, 0, 0, 127, 127, 127, 128, 128, 128, 255, 255, 255});
  for (const bool big_endian : {false, true}) {
    for (std::uint32_t orientation = 1; orientation <= 8; ++orientation) {
      const Rgb display = reference_orient(picture, static_cast<int>(orientation));
      CHECK(pixels_of(decode_file(make_tiff(picture, {.big_endian = big_endian, .orientation = orientation}))) ==
            display);
      CHECK(pixels_of(decode_file(make_tiff(
                picture, {.big_endian = big_endian, .sixteen = true, .orientation = orientation}))) == display);
    }
  }
  const Rgb blended = pixels_of(decode_file(make_tiff(picture, {.alpha = true})));
  int largest = 0;
  for (int i = 0; i < 37 * 23 * 3; ++i) {
    const double alpha = (255 - 5 * (i / 3 % 37)) / 255.0;
    largest = std::max(
        largest, static_cast<int>(std::abs(blended.data[static_cast<std::size_t>(i)] -
                                           (picture.data[static_cast<std::size_t>(i)] * alpha + 255 * (1 - alpha)))));
  }
  CHECK(largest <= 1);  // libtiff multiplies by alpha in 8 bits
  const Decoded pages = decode_file(make_tiff(picture, {.next = 8}));
  CHECK(pages.warnings.size() == 1);
  CHECK(pixels_of(pages) == picture);

  CHECK(pixels_of(decode_file(webp_alpha)) == nine_by_six(true));
  CHECK(pixels_of(decode_file(webp_turned)) == reference_orient(nine_by_six(false), 6));
  CHECK(pixels_of(decode_file(jpeg2000)) == nine_by_six(false));
  const Decoded animated = decode_file(webp_animated);
  CHECK(animated.warnings.size() == 1);
  CHECK(pixels_of(animated) == nine_by_six(true));
  const Rgb lossy = pixels_of(decode_file(webp_lossy));
  REQUIRE(lossy.data.size() == 9 * 6 * 3);
  CHECK(std::abs(lossy.data[0] - 200) + std::abs(lossy.data[1] - 30) + std::abs(lossy.data[2] - 90) <= 9);
}

TEST_CASE("decode: sizes of other formats are read and limited before their codec is loaded") {
  const Rgb picture = ramp(37, 23);
  const auto overwrite = [](File file, std::size_t at, const File& with) {
    std::copy(with.begin(), with.end(), file.begin() + static_cast<std::ptrdiff_t>(at));
    return file;
  };
  const File bmp = make_bmp(picture, 24, false), tiff = make_tiff(picture, {});
  expect(overwrite(bmp, 18, little({{60000, 4}, {60000, 4}})), Reason::too_large, "60000 x 60000");
  expect(overwrite(bmp, 18, little({{9000, 4}, {9000, 4}})), Reason::truncated, "BMP data end early");
  expect(overwrite(bmp, 22, little({{0x80000000, 4}})), Reason::too_large, "2147483647");
  expect(overwrite(bmp, 14, little({{7, 4}})), Reason::unsupported_format, "header of 7");
  for (const std::size_t size : {10U, 20U, 28U}) expect(cut(bmp, size), Reason::truncated, "inside its header");
  expect(cut(bmp, bmp.size() - 1), Reason::truncated, "BMP data end early");
  expect(bytes_of("P5 7000 7000 255\n"), Reason::truncated, "PNM data end early");
  expect(bytes_of("P2 70000 70000 255\n"), Reason::too_large, "70000 x 70000");
  expect(bytes_of("P5 99999999999999999999 1 255\n"), Reason::too_large, "");
  expect(bytes_of("P6 3 x"), Reason::corrupt_data, "not numbers");
  expect(bytes_of("P5 4 4 12\n"), Reason::unsupported_format, "white is 12");
  expect(bytes_of("P5 #"), Reason::truncated, "");
  expect(overwrite(overwrite(tiff, 10 + 8, little({{50000, 4}})), 22 + 8, little({{50000, 4}})), Reason::too_large,
         "50000 x 50000");
  expect(overwrite(tiff, 10 + 8, little({{200000, 4}})), Reason::too_large, "longest side");
  expect(cut(tiff, tiff.size() - 5), Reason::truncated, "TIFF data end early");
  expect(overwrite(tiff, 4, little({{0x7FFFFFFF, 4}})), Reason::truncated, "");
  expect(overwrite(tiff, 2, File{43, 0}), Reason::unsupported_format, "BigTIFF");
  expect(overwrite(webp_alpha, 21, File{0xFF, 0xFF, 0xFF, 0x0F}), Reason::too_large,
         "a WebP of 16384 x 16384 pixels would take");
  expect(cut(webp_alpha, 40), Reason::truncated, "WebP data end early");
  expect(overwrite(jpeg2000, 8, File{0x7F, 0xFF, 0xFF, 0xFF}), Reason::too_large, "longest side");
}

TEST_CASE("decode: without the plugin the reason is codec_missing, and the message says what to do") {
  const char* set = std::getenv("MILLRACE_PLUGIN_DIR");
  const std::string before = set == nullptr ? "" : set;
  setenv("MILLRACE_PLUGIN_DIR", "/nowhere", 1);
  CHECK_NOTHROW(probe(make_bmp(ramp(5, 4), 24, false), {}));
  expect(make_bmp(ramp(5, 4), 24, false), Reason::codec_missing, "MILLRACE_PLUGIN_DIR");
  CHECK(check_imgcodecs_plugin().find("make install") != std::string::npos);
  set == nullptr ? unsetenv("MILLRACE_PLUGIN_DIR") : setenv("MILLRACE_PLUGIN_DIR", before.c_str(), 1);
}

TEST_CASE("decode: damaged files of other formats decode or fail with PictureError") {
  if (!has_plugin()) return;
  const Rgb picture = ramp(37, 23);
  const int decoded =
      survive({make_bmp(picture, 24, false), make_bmp(picture, 32, true), make_tiff(picture, {.orientation = 6}),
               make_tiff(picture, {.big_endian = true, .sixteen = true, .orientation = 3}), webp_alpha, webp_lossy,
               webp_turned, webp_animated, jpeg2000, bytes_of("P6\n37 23\n255\n") + picture.data},
              1000, 2);
  CHECK(decoded > 30);
}
