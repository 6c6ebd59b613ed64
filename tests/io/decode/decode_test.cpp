#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>

#include <spng.h>

#include "io/decode/decode_headers.hpp"
#include "io/decode/imgcodecs.hpp"
#include "tests/io/decode/decode_checks.hpp"
#include "tests/io/decode/decode_inputs.hpp"
#include "tests/sanitized.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

/// A PNG of grey rows that are made one by one, so that the test itself needs no raster.
File make_large_png(std::uint32_t width, std::uint32_t height, int bits,
                    const std::function<std::uint8_t(std::uint32_t y)>& byte_of_row) {
  spng_ctx* c = spng_ctx_new(SPNG_CTX_ENCODER);
  spng_set_option(c, SPNG_ENCODE_TO_BUFFER, 1);
  spng_set_option(c, SPNG_IMG_COMPRESSION_LEVEL, 1);
  spng_set_option(c, SPNG_FILTER_CHOICE, SPNG_DISABLE_FILTERING);
  spng_ihdr header{width, height, static_cast<std::uint8_t>(bits), 0, 0, 0, 0};
  spng_set_ihdr(c, &header);
  spng_encode_image(c, nullptr, 0, SPNG_FMT_PNG, SPNG_ENCODE_PROGRESSIVE | SPNG_ENCODE_FINALIZE);
  std::vector<std::uint8_t> row((width * static_cast<std::size_t>(bits) + 7) / 8);
  for (std::uint32_t y = 0; y < height; ++y) {
    std::fill(row.begin(), row.end(), byte_of_row(y));
    spng_encode_row(c, row.data(), row.size());
  }
  std::size_t size = 0;
  int error = 0;
  void* memory = spng_get_png_buffer(c, &size, &error);
  File file(static_cast<std::uint8_t*>(memory), static_cast<std::uint8_t*>(memory) + size);
  std::free(memory);
  spng_ctx_free(c);
  return file;
}

std::vector<File> jpeg_and_png_seeds() {
  const Rgb picture = ramp(61, 43);
  const std::vector<std::uint16_t> samples(picture.data.begin(), picture.data.end());
  std::vector<File> seeds{
      make_jpeg(picture),
      make_jpeg(picture, {.progressive = true, .exif = exif_block(6)}),
      make_jpeg(picture, {.components = 4, .ycck = true, .restart_rows = 1}),
      make_jpeg(picture, {.arithmetic = true, .exif = exif_block(3, true)}),
      make_jpeg(picture, {.components = 1, .progressive = true, .arithmetic = true}),
      make_png(picture),
      make_png(picture, true),
      make_png(61, 43, samples, {.chunks = {{"eXIf", exif_block(7)}}}),
      make_png(61, 43, samples, {.bit_depth = 8, .interlaced = true, .chunks = {{"eXIf", exif_block(5)}}})};
  std::vector<std::uint16_t> indices(61 * 43);
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::uint16_t>(i % 4);
  seeds.push_back(make_png(
      61, 43, indices,
      {.colour_type = 3, .bit_depth = 2, .palette = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, .palette_alpha = {9}}));
  return seeds;
}

}  // namespace

TEST_CASE("decode: the message about a file that is no picture names its content") {
  expect({}, Reason::empty, "no bytes");
  expect(bytes_of("<html><head><title>404</title>"), Reason::not_an_image, "HTML text");
  expect(bytes_of("\n<!DOCTYPE html>"), Reason::not_an_image, "HTML text");
  expect(bytes_of("{\"error\": 404}"), Reason::not_an_image, "JSON text");
  expect(bytes_of("<?xml version='1.0'?><Error/>"), Reason::not_an_image, "XML text");
  expect(bytes_of("hello"), Reason::not_an_image, "plain text");
  expect(bytes_of("version https://git-lfs.github.com/spec/v1\noid"), Reason::not_an_image, "git lfs pull");
  expect(bytes_of("%PDF-1.7"), Reason::not_an_image, "PDF");
  expect(File(1000, 0), Reason::not_an_image, "interrupted copy");
  expect({0x12, 0x93, 0x00, 0xF1}, Reason::not_an_image, "unknown binary data");
  for (int first = 0; first < 256; ++first) CHECK(outcome_of({static_cast<std::uint8_t>(first)}).reason.has_value());
}

TEST_CASE("decode: the message about a format without a decoder names the format") {
  using namespace std::string_literals;
  const std::pair<std::string, const char*> kinds[] = {{"GIF89a\1\0\1\0", "GIF"},
                                                       {"\0\0\0\x20"
                                                        "ftypavif"s,
                                                        "AVIF"},
                                                       {"\0\0\0\x18"
                                                        "ftypheic"s,
                                                        "HEIC"},
                                                       {"\xFF\x0A\x00\x11", "JPEG XL"},
                                                       {"8BPS\0\1"s, "Photoshop"},
                                                       {"#?RADIANCE\n", "Radiance"},
                                                       {"<svg xmlns=''>", "SVG"},
                                                       {"<?xml version='1.0'?><svg>", "SVG"},
                                                       {"\0\0\1\0\1\0"s, "ICO"},
                                                       {"\x76\x2F\x31\x01", "OpenEXR"}};
  for (const auto& [text, name] : kinds) expect(bytes_of(text), Reason::unsupported_format, name);
}

TEST_CASE("decode: without memory only this picture fails") {
  const File file = make_jpeg(ramp(40, 30));
  const PictureInfo info = probe(file, {});
  for (const PixelAllocator& none :
       {PixelAllocator([](std::size_t) { return std::shared_ptr<std::uint8_t>(); }),
        PixelAllocator([](std::size_t) -> std::shared_ptr<std::uint8_t> { throw std::bad_alloc(); })}) {
    try {
      decode(file, info, {}, none);
      FAIL("decoded without memory");
    } catch (const PictureError& error) {
      CHECK(error.reason() == Reason::oom_host);
    }
  }
}

TEST_CASE("decode: a picture other than the probed one is refused") {
  const PictureInfo info = probe(make_jpeg(ramp(40, 30)), {});
  const auto allocate = [](std::size_t size) {
    return std::shared_ptr<std::uint8_t>(new std::uint8_t[size], std::default_delete<std::uint8_t[]>());
  };
  CHECK_THROWS_AS(decode(make_jpeg(ramp(400, 300)), info, {}, allocate), PictureError);
  CHECK_THROWS_AS(decode(make_png(ramp(40, 30)), info, {}, allocate), PictureError);
}

TEST_CASE("decode: pixels are written to the caller's memory, which is requested once") {
  std::vector<std::uint8_t> slab(40 * 30 * 3 + 100, 0xEE);
  for (const File& file : {make_jpeg(ramp(40, 30)), make_png(ramp(40, 30)), make_png(ramp(40, 30), true)}) {
    int calls = 0;
    const Decoded decoded = decode(file, probe(file, {}), {}, [&](std::size_t size) {
      CHECK(size == 40 * 30 * 3);
      ++calls;
      return std::shared_ptr<std::uint8_t>(slab.data(), [](std::uint8_t*) {});
    });
    CHECK(calls == 1);
    CHECK(decoded.pixels.data.get() == slab.data());
    CHECK(std::all_of(slab.end() - 100, slab.end(), [](std::uint8_t v) { return v == 0xEE; }));
  }
}

TEST_CASE("decode: the reduction is the smallest that fits, and each pixel is the exact mean") {
  for (const auto& [width, height] :
       std::initializer_list<std::pair<int, int>>{{1, 1}, {97, 61}, {200, 3}, {3, 200}, {128, 128}}) {
    const Rgb picture = ramp(width, height);
    for (const bool interlaced : {false, true}) {
      const File file = make_png(picture, interlaced);
      for (std::int64_t slab = 3; slab < 60'000; slab = slab * 5 / 3 + 1) {
        CAPTURE(width);
        CAPTURE(slab);
        const Decoded decoded = decode_file(file, {.slab_bytes = slab});
        const int reduction = decoded.info.reduction;
        CHECK(decoded.info.width == width);
        CHECK(decoded.info.pixel_bytes <= slab);
        if (reduction > 1) {
          CHECK(3LL * ((width + reduction - 2) / (reduction - 1)) * ((height + reduction - 2) / (reduction - 1)) >
                slab);
        }
        CHECK(pixels_of(decoded) == reference_reduce(picture, reduction));
      }
    }
  }
}

TEST_CASE("decode: orientation and reduction of PNG, plain and interlaced") {
  const Rgb picture = ramp(53, 37);
  const std::vector<std::uint16_t> samples(picture.data.begin(), picture.data.end());
  for (std::uint32_t orientation = 1; orientation <= 8; ++orientation) {
    for (const bool interlaced : {false, true}) {
      const File file =
          make_png(53, 37, samples, {.interlaced = interlaced, .chunks = {{"eXIf", exif_block(orientation)}}});
      for (const std::int64_t slab : {100'000, 1000}) {
        const Decoded decoded = decode_file(file, {.slab_bytes = slab});
        CHECK(pixels_of(decoded) ==
              reference_reduce(reference_orient(picture, static_cast<int>(orientation)), decoded.info.reduction));
      }
    }
  }
}

TEST_CASE("decode: a real picture of 20000 x 20000 stays within a slab" * doctest::skip(thread_sanitized)) {
  // Row y is white where y / 8 is odd: with a reduction of 5 every kind of mean occurs.
  const File file = make_large_png(
      20000, 20000, 1, [](std::uint32_t y) { return static_cast<std::uint8_t>((y / 8) % 2 == 0 ? 0x00 : 0xFF); });
  CHECK(file.size() < 1'000'000);
  const std::int64_t before = peak_resident_bytes();
  expect(file, Reason::too_large, "20000 x 20000 = 400000000");
  const Decoded decoded = decode_file(file, {.max_pixels = 400'000'000});
  const std::int64_t growth = peak_resident_bytes() - before;
  CHECK(decoded.info.width == 20000);
  REQUIRE(decoded.info.reduction == 5);
  if (!sanitized) CHECK(growth < (64 << 20) + (16 << 20));
  const std::uint8_t* data = decoded.pixels.data.get();
  for (int y = 0; y < 4000; ++y) {
    int white = 0;
    for (int i = 0; i < 5; ++i) white += ((5 * y + i) / 8) % 2;
    REQUIRE(data[3 * (4000LL * y + y)] == 255 * white / 5);
  }
}

TEST_CASE("decode: bombs are refused without much memory") {
  const File jpeg = make_jpeg(ramp(320, 240));
  const File bombs[] = {with_jpeg_size(jpeg, 30000, 30000),
                        with_jpeg_size(jpeg, 17000, 17000),
                        with_jpeg_size(jpeg, 65500, 65500),
                        png_header(50000, 50000),
                        png_header(17000, 17000),
                        png_header(17000, 17000, 16, 6, true),
                        with_jpeg_size(make_jpeg(ramp(320, 240), {.progressive = true}), 9000, 9000),
                        cut(with_jpeg_size(make_jpeg(ramp(320, 240), {.progressive = true}), 9000, 9000), 4000)};
  const std::int64_t before = peak_resident_bytes();
  for (const File& bomb : bombs) CHECK(outcome_of(bomb).reason.has_value());
  CHECK(peak_resident_bytes() - before < 64 << 20);
}

TEST_CASE("decode: 3000 damaged JPEG and PNG files decode or fail with PictureError") {
  const int decoded = survive(jpeg_and_png_seeds(), 3000, 1);
  CHECK(decoded > 100);  // else the damage is so heavy that no decoder was tried
  CHECK(decoded < 2900);
}
