#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/io/decode/decode_checks.hpp"
#include "tests/io/decode/decode_inputs.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

/// The documented RGB8 rule in double precision, computed from the samples.
Rgb reference(int width, int height, const std::vector<std::uint16_t>& samples, const PngOptions& options) {
  const double top = std::pow(2.0, options.bit_depth) - 1;
  const std::size_t channels = options.colour_type == 2   ? 3
                               : options.colour_type == 6 ? 4
                               : options.colour_type == 4 ? 2
                                                          : 1;
  Rgb result{width, height, {}};
  for (std::size_t i = 0; i < samples.size(); i += channels) {
    double rgb[3], alpha = 1;
    for (std::size_t c = 0; c < 3; ++c) {
      if (options.colour_type == 3) {
        rgb[c] = options.palette[3U * samples[i] + c] / 255.0;
      } else {
        rgb[c] = samples[i + (channels >= 3 ? c : 0)] / top;
      }
    }
    if (options.colour_type == 4 || options.colour_type == 6) alpha = samples[i + channels - 1] / top;
    if (options.colour_type == 3 && samples[i] < options.palette_alpha.size())
      alpha = options.palette_alpha[samples[i]] / 255.0;
    if (options.grey_key && samples[i] == *options.grey_key) alpha = 0;
    for (const double value : rgb)
      result.data.push_back(static_cast<std::uint8_t>(std::floor(255 * (value * alpha + 1 - alpha) + 0.5)));
  }
  return result;
}

std::vector<std::uint16_t> samples_for(int width, int height, int channels, unsigned top) {
  std::vector<std::uint16_t> samples;
  std::uint32_t state = 12345;
  for (int i = 0; i < width * height * channels; ++i) {
    state = state * 1664525 + 1013904223;
    samples.push_back(static_cast<std::uint16_t>(i % 7 == 0 ? top : i % 11 == 0 ? 0 : (state >> 8) % (top + 1)));
  }
  return samples;
}

}  // namespace

TEST_CASE("png: every colour type and depth, plain and interlaced, follows the documented RGB8 rule") {
  std::vector<PngOptions> kinds;
  for (const int depth : {1, 2, 4, 8, 16}) {
    kinds.push_back({.colour_type = 0, .bit_depth = depth});
    kinds.push_back({.colour_type = 0, .bit_depth = depth, .grey_key = 1});
  }
  for (const int depth : {8, 16}) {
    for (const int type : {2, 4, 6}) kinds.push_back({.colour_type = type, .bit_depth = depth});
  }
  for (const int depth : {1, 2, 4, 8}) {
    PngOptions kind{.colour_type = 3, .bit_depth = depth};
    for (int i = 0; i < 1 << depth; ++i) {
      for (const int value : {i * 37, 255 - i, i * i}) kind.palette.push_back(static_cast<std::uint8_t>(value));
    }
    kinds.push_back(kind);
    kind.palette_alpha = {0, 100};
    kinds.push_back(kind);
  }
  for (PngOptions kind : kinds) {
    const int channels = kind.colour_type == 2 ? 3 : kind.colour_type == 6 ? 4 : kind.colour_type == 4 ? 2 : 1;
    for (const auto& [width, height] :
         std::initializer_list<std::pair<int, int>>{{1, 1}, {1, 9}, {9, 1}, {3, 5}, {37, 23}}) {
      const auto samples = samples_for(width, height, channels, (1U << kind.bit_depth) - 1);
      for (const bool interlaced : {false, true}) {
        kind.interlaced = interlaced;
        CAPTURE(kind.colour_type);
        CAPTURE(kind.bit_depth);
        CAPTURE(kind.palette_alpha.size());
        CAPTURE(interlaced);
        CAPTURE(width);
        const Outcome outcome = outcome_of(make_png(width, height, samples, kind));
        REQUIRE_MESSAGE(outcome.decoded.has_value(), outcome.detail);
        CHECK(max_difference(pixels_of(*outcome.decoded), reference(width, height, samples, kind)) == 0);
        CHECK(outcome.decoded->warnings.empty());
      }
    }
  }
}

TEST_CASE("png: all 65536 values of 16 bits are rounded, not cut off") {
  std::vector<std::uint16_t> samples(65536);
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<std::uint16_t>(i);
  const PngOptions kind{.colour_type = 0, .bit_depth = 16};
  CHECK(pixels_of(decode_file(make_png(256, 256, samples, kind))) == reference(256, 256, samples, kind));
}

TEST_CASE("png: files cut at ten places") {
  const Rgb picture = ramp(200, 150);
  const File file = make_png(picture);
  int last_rows = -1;
  for (std::size_t tenth = 1; tenth <= 10; ++tenth) {
    const Outcome outcome = outcome_of(cut(file, 60 + (file.size() - 60) * tenth / 11));
    REQUIRE(outcome.reason == Reason::truncated);
    int rows = -1;
    REQUIRE(std::sscanf(outcome.detail.c_str(), "the PNG data end early: %d of 150", &rows) == 1);
    CHECK(rows >= last_rows);
    last_rows = rows;
  }
  CHECK(last_rows > 75);
  for (const std::size_t size : {8U, 20U, 33U, 36U}) expect(cut(file, size), Reason::truncated, "");

  const File shorter = cut(file, file.size() * 10 / 11);
  const double share = last_rows / 150.0;
  expect(shorter, Reason::truncated, "rows", {.accept_truncated = share + 1e-6});
  const Outcome lenient = outcome_of(shorter, {.accept_truncated = share});
  REQUIRE(lenient.decoded.has_value());
  CHECK(lenient.decoded->warnings.size() == 1);
  const Rgb part = pixels_of(*lenient.decoded);
  CHECK(std::equal(part.data.begin(), part.data.begin() + 600L * last_rows, picture.data.begin()));
  CHECK(std::all_of(part.data.begin() + 600L * last_rows, part.data.end(), [](std::uint8_t v) { return v == 128; }));
}

TEST_CASE("png: a cut interlaced picture has complete rows only in its last pass") {
  const Rgb picture = ramp(64, 48);
  const File file = make_png(picture, true);
  expect(cut(file, file.size() / 3), Reason::truncated, "0 of 48 rows complete");
  const File shorter = cut(file, file.size() - 200);
  int rows = 0;
  const Outcome strict = outcome_of(shorter);
  REQUIRE(std::sscanf(strict.detail.c_str(), "the PNG data end early: %d of", &rows) == 1);
  REQUIRE(rows > 10);
  for (const std::int64_t slab : {std::int64_t{1} << 20, std::int64_t{64 * 48}}) {
    const Outcome lenient = outcome_of(shorter, {.slab_bytes = slab, .accept_truncated = 0.1});
    REQUIRE(lenient.decoded.has_value());
    if (lenient.decoded->info.reduction > 1) continue;
    const Rgb part = pixels_of(*lenient.decoded);
    CHECK(std::equal(part.data.begin(), part.data.begin() + 192L * rows, picture.data.begin()));
  }
}

TEST_CASE("png: checksums and compressed data must be right; only the end chunk may be missing") {
  const Rgb picture = ramp(80, 60);
  const File file = make_png(picture);
  File wrong = file;
  wrong[file.size() - 14] ^= 1;  // the last checksum before IEND
  expect(wrong, Reason::corrupt_data, "");
  wrong = file;
  wrong[file.size() / 2] ^= 0x10;
  expect(wrong, Reason::corrupt_data, "");
  wrong = file;
  wrong[19] ^= 1;  // the width
  expect(wrong, Reason::corrupt_data, "");
  const Decoded endless = decode_file(cut(file, file.size() - 12));
  CHECK(pixels_of(endless) == picture);
  CHECK(endless.warnings.size() == 1);
  const Decoded junk = decode_file(file + File(3000, 0x41));
  CHECK(pixels_of(junk) == picture);
  CHECK(junk.warnings.empty());
}

TEST_CASE("png: optional chunks are ignored, and an unknown critical chunk is an error") {
  const Rgb picture = ramp(30, 20);
  const std::vector<std::uint16_t> samples(picture.data.begin(), picture.data.end());
  // 1,000 chunks that would each inflate to a lot are not read.
  PngOptions options;
  for (int i = 0; i < 500; ++i) options.chunks.emplace_back("zTXt", File(300, 0x78));
  for (int i = 0; i < 500; ++i) options.chunks.emplace_back("iCCP", File(300, 0x78));
  CHECK(pixels_of(decode_file(make_png(30, 20, samples, options))) == picture);
  options = {};
  options.chunks.emplace_back("acTL", File{0, 0, 0, 2, 0, 0, 0, 0});
  const Decoded animated = decode_file(make_png(30, 20, samples, options));
  CHECK(pixels_of(animated) == picture);
  REQUIRE(animated.warnings.size() == 1);
  CHECK(animated.warnings[0].find("animated") != std::string::npos);
  options.chunks = {{"ABCD", {1, 2, 3}}};
  expect(make_png(30, 20, samples, options), Reason::corrupt_data, "critical");
}

TEST_CASE("png: files over 1 MB, in many data chunks and in one") {
  Rgb noise{800, 600, {}};
  std::mt19937 random(11);
  for (int i = 0; i < 3 * 800 * 600; ++i) noise.data.push_back(static_cast<std::uint8_t>(random()));
  for (const bool interlaced : {false, true}) {
    const File file = make_png(noise, interlaced);
    REQUIRE(file.size() > std::size_t{1} << 20);
    CHECK(pixels_of(decode_file(file)) == noise);
    File data;
    int chunks = 0;
    for (std::size_t at = 33, length = 0; at < file.size(); at += 12 + length) {
      length =
          std::size_t{file[at]} << 24 | std::size_t{file[at + 1]} << 16 | std::size_t{file[at + 2]} << 8 | file[at + 3];
      if (file[at + 4] != 'I' || file[at + 5] != 'D') continue;
      ++chunks;
      data.insert(data.end(), file.begin() + static_cast<std::ptrdiff_t>(at + 8),
                  file.begin() + static_cast<std::ptrdiff_t>(at + 8 + length));
    }
    CHECK(chunks > 1);
    const File one = cut(file, 33) + png_chunk("IDAT", data) + png_chunk("IEND", {});
    CHECK(pixels_of(decode_file(one)) == noise);
    expect(cut(one, one.size() * 9 / 10), Reason::truncated, "rows complete");
  }
}

TEST_CASE("png: bombs are refused by their header") {
  const std::int64_t before = resident_bytes();
  expect(png_header(50000, 50000), Reason::too_large, "50000 x 50000 = 2500000000");
  expect(png_header(0x7FFFFFFF, 0x7FFFFFFF), Reason::too_large, "");
  expect(png_header(0x7FFFFFFF, 1), Reason::too_large, "");
  expect(png_header(100001, 1), Reason::too_large, "longest side");
  expect(png_header(0, 5), Reason::corrupt_data, "");
  expect(png_header(5, 5, 3), Reason::corrupt_data, "");
  expect(png_header(17000, 17000), Reason::truncated, "");
  expect(png_header(17000, 17000, 8, 2, true), Reason::too_large, "interlaced");
  expect(png_header(12000, 12000, 8, 2, true), Reason::truncated, "");
  CHECK(resident_bytes() - before < 16 << 20);
}

TEST_CASE("png: the orientation in eXIf counts, before and after the data") {
  const Rgb picture = ramp(7, 4);
  const std::vector<std::uint16_t> samples(picture.data.begin(), picture.data.end());
  for (const bool interlaced : {false, true}) {
    const File before = make_png(7, 4, samples, {.interlaced = interlaced, .chunks = {{"eXIf", exif_block(6, true)}}});
    CHECK(pixels_of(decode_file(before)) == reference_orient(picture, 6));
    File after = make_png(picture, interlaced);
    const File chunk = png_chunk("eXIf", exif_block(8));
    after.insert(after.end() - 12, chunk.begin(), chunk.end());
    CHECK(pixels_of(decode_file(after)) == reference_orient(picture, 8));
  }
}
