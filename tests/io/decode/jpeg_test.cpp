#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/io/decode/decode_checks.hpp"
#include "tests/io/decode/decode_inputs.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

std::filesystem::path data_folder() {
  const char* set = std::getenv("MILLRACE_TEST_DATA");
  return set != nullptr ? std::filesystem::path(set)
                        : std::filesystem::path(MILLRACE_SOURCE_DIR) / ".." / "shared" / "data";
}

}  // namespace

TEST_CASE("jpeg: the pixels equal libjpeg's, for every common kind") {
  for (const auto& [width, height] :
       std::initializer_list<std::pair<int, int>>{{1, 1}, {1, 37}, {37, 1}, {16, 16}, {101, 67}, {640, 480}}) {
    const Rgb picture = ramp(width, height);
    for (const bool progressive : {false, true}) {
      for (const bool subsampled : {false, true}) {
        for (const int restart_rows : {0, 1}) {
          CAPTURE(width);
          CAPTURE(progressive);
          const File file =
              make_jpeg(picture, {.progressive = progressive, .subsampled = subsampled, .restart_rows = restart_rows});
          const Decoded decoded = decode_file(file);
          CHECK(pixels_of(decoded) == plain_libjpeg(file));
          CHECK(decoded.info.width == width);
          CHECK(decoded.info.height == height);
          CHECK(decoded.warnings.empty());
        }
      }
    }
  }
}

TEST_CASE("jpeg: 32767 pixels wide, one row high") {
  const Rgb picture = ramp(32767, 1);
  CHECK(max_difference(pixels_of(decode_file(make_jpeg(picture))), picture) <= 12);
}

TEST_CASE("jpeg: grey becomes three equal channels") {
  const Rgb picture = ramp(33, 21);
  const Rgb grey = pixels_of(decode_file(make_jpeg(picture, {.quality = 98, .components = 1})));
  for (int y = 0; y < 21; ++y) {
    for (int x = 0; x < 33; ++x) {
      const std::uint8_t* p = grey.at(x, y);
      REQUIRE(p[0] == p[1]);
      REQUIRE(p[0] == p[2]);
      REQUIRE(std::abs(p[0] - picture.at(x, y)[0]) <= 3);
    }
  }
}

TEST_CASE("jpeg: CMYK and YCCK become the colours that a viewer shows") {
  const Rgb picture = ramp(64, 48);
  for (const bool ycck : {false, true}) {
    for (const bool adobe : {true, false}) {
      if (ycck && !adobe) continue;  // only Adobe's marker says YCCK
      const Rgb rgb = pixels_of(decode_file(
          make_jpeg(picture, {.quality = 98, .components = 4, .ycck = ycck, .adobe = adobe, .subsampled = false})));
      int largest = 0;
      for (int y = 0; y < 48; ++y) {
        for (int x = 0; x < 64; ++x) {
          for (int c = 0; c < 3; ++c) {
            const double stored = picture.at(x, y)[c];
            const double expected = adobe ? stored * 200 / 255.0 : (255 - stored) * (255 - 200) / 255.0;
            largest = std::max(largest, static_cast<int>(std::abs(rgb.at(x, y)[c] - expected)));
          }
        }
      }
      CAPTURE(ycck);
      CAPTURE(adobe);
      CHECK(largest <= 5);
    }
  }
}

TEST_CASE("jpeg: arithmetic coding is decoded, and a cut file is refused") {
  const Rgb picture = ramp(120, 90);
  const File file = make_jpeg(picture, {.arithmetic = true});
  CHECK(max_difference(pixels_of(decode_file(file)), picture) <= 12);
  expect(cut(file, file.size() / 2), Reason::truncated, "0 of 90 rows");
}

TEST_CASE("jpeg: files cut at ten places") {
  const Rgb picture = ramp(320, 240);
  const File file = make_jpeg(picture, {.quality = 95, .subsampled = false});
  const std::size_t scan = find_marker(file, 0xDA);
  int last_rows = -1;
  for (int tenth = 1; tenth <= 10; ++tenth) {
    const std::size_t size = scan + 14 + (file.size() - scan - 16) * static_cast<std::size_t>(tenth) / 11;
    const Outcome outcome = outcome_of(cut(file, size));
    REQUIRE(outcome.reason == Reason::truncated);
    int rows = -1;
    REQUIRE(std::sscanf(outcome.detail.c_str(), "the JPEG data end early: %d of 240", &rows) == 1);
    CHECK(rows >= last_rows);
    CHECK(rows % 8 == 0);
    last_rows = rows;
  }
  CHECK(last_rows >= 160);
  for (const std::size_t size : {std::size_t{2}, std::size_t{3}, std::size_t{20}, std::size_t{100}, scan, scan + 6}) {
    expect(cut(file, size), Reason::truncated, "end inside the header");
  }
}

TEST_CASE("jpeg: the complete rows of a cut picture are right, and accept_truncated accepts it") {
  const Rgb picture = ramp(320, 240);
  for (const bool subsampled : {false, true}) {
    const File file = make_jpeg(picture, {.quality = 95, .subsampled = subsampled});
    const Rgb whole = plain_libjpeg(file);
    const File shorter = cut(file, file.size() * 97 / 100);
    const Outcome strict = outcome_of(shorter);
    REQUIRE(strict.reason == Reason::truncated);
    int rows = 0;
    REQUIRE(std::sscanf(strict.detail.c_str(), "the JPEG data end early: %d of", &rows) == 1);
    REQUIRE(rows > 200);
    REQUIRE(rows < 240);
    const double share = rows / 240.0;
    expect(shorter, Reason::truncated, "complete", {.accept_truncated = share + 1e-6});
    const Outcome lenient = outcome_of(shorter, {.accept_truncated = share});
    REQUIRE_MESSAGE(lenient.decoded.has_value(), lenient.detail);
    REQUIRE(lenient.decoded->warnings.size() == 1);
    CHECK(lenient.decoded->warnings[0].find("the rest is filler") != std::string::npos);
    const Rgb part = pixels_of(*lenient.decoded);
    const int blended = subsampled ? 1 : 0;  // upsampled chroma reads one row below, in the filler
    CHECK(std::equal(part.data.begin(), part.data.begin() + 3L * 320 * (rows - blended), whole.data.begin()));
  }
}

TEST_CASE("jpeg: a cut progressive picture has complete rows only in its last scan") {
  const File file = make_jpeg(ramp(320, 240), {.quality = 95, .progressive = true});
  expect(cut(file, file.size() / 2), Reason::truncated, "0 of 240 rows complete");
  expect(cut(file, file.size() / 2), Reason::truncated, "0 of 240 rows complete", {.accept_truncated = 0.5});
  const Outcome late = outcome_of(cut(file, file.size() - 20));
  REQUIRE(late.reason == Reason::truncated);
  int rows = 0;
  REQUIRE(std::sscanf(late.detail.c_str(), "the JPEG data end early: %d of", &rows) == 1);
  CHECK(rows > 100);
  CHECK(rows < 240);
  const Outcome accepted = outcome_of(cut(file, file.size() - 20), {.accept_truncated = rows / 240.0});
  REQUIRE_MESSAGE(accepted.decoded.has_value(), accepted.detail);
  const Rgb part = pixels_of(*accepted.decoded), whole = plain_libjpeg(file);
  CHECK(std::equal(part.data.begin(), part.data.begin() + 3L * 320 * (rows - 1), whole.data.begin()));
}

TEST_CASE("jpeg: a cut between two scans is detected") {
  for (const bool arithmetic : {false, true}) {
    const File file = make_jpeg(ramp(64, 64), {.progressive = true, .arithmetic = arithmetic});
    std::vector<std::size_t> scans;
    for (std::size_t i = 0; i + 1 < file.size(); ++i) {
      if (file[i] == 0xFF && file[i + 1] == 0xDA) scans.push_back(i);
    }
    REQUIRE(scans.size() >= 4);
    for (std::size_t i = 1; i < scans.size(); ++i) expect(cut(file, scans[i]), Reason::truncated, "");
  }
}

TEST_CASE("jpeg: only the end marker may be missing, and other bytes may follow it") {
  for (const bool progressive : {false, true}) {
    const File file = make_jpeg(ramp(123, 77), {.progressive = progressive});
    const Decoded cut_off = decode_file(cut(file, file.size() - 2));
    CHECK(pixels_of(cut_off) == plain_libjpeg(file));
    REQUIRE(cut_off.warnings.size() == 1);
    CHECK(cut_off.warnings[0].find("end marker") != std::string::npos);
    const Decoded half = decode_file(cut(file, file.size() - 1));
    CHECK(pixels_of(half) == plain_libjpeg(file));
    CHECK(half.warnings.size() == 1);
    File junk(5000);
    for (std::size_t i = 0; i < junk.size(); ++i) junk[i] = static_cast<std::uint8_t>(i * 7919 >> 3);
    const Decoded longer = decode_file(file + junk);
    CHECK(pixels_of(longer) == plain_libjpeg(file));
    CHECK(longer.warnings.empty());
  }
}

TEST_CASE("jpeg: twenty flipped bytes in the scan are corrupt data") {
  File file = make_jpeg(ramp(320, 240), {.quality = 95});
  const std::size_t scan = find_marker(file, 0xDA) + 40;
  for (std::size_t i = 0; i < 20; ++i) file[scan + i * (file.size() - scan - 10) / 20] ^= 0x5A;
  expect(file, Reason::corrupt_data, "");
}

TEST_CASE("jpeg: a marker or an early end inside the scan is corrupt data") {
  const File file = make_jpeg(ramp(320, 240));
  const std::size_t middle = (find_marker(file, 0xDA) + file.size()) / 2;
  expect(cut(file, middle) + File{0xFF, 0xD9}, Reason::corrupt_data, "premature end");
  File marker = file;
  marker[middle] = 0xFF;
  marker[middle + 1] = 0xD3;
  expect(marker, Reason::corrupt_data, "row");
  const File restarts = make_jpeg(ramp(320, 240), {.restart_rows = 1});
  expect(cut(restarts, restarts.size() / 2), Reason::truncated, "rows complete");
}

TEST_CASE("jpeg: headers with false sizes") {
  const File file = make_jpeg(ramp(320, 240));
  expect(with_jpeg_size(file, 30000, 30000), Reason::too_large, "30000 x 30000 = 900000000");
  expect(with_jpeg_size(file, 65500, 65500), Reason::too_large, "65500");
  expect(with_jpeg_size(file, 65535, 65535), Reason::too_large, "65500");
  expect(with_jpeg_size(file, 0, 240), Reason::corrupt_data, "");
  const std::int64_t before = resident_bytes();
  expect(with_jpeg_size(file, 16000, 16000), Reason::corrupt_data, "premature end");
  expect(cut(with_jpeg_size(file, 16000, 16000), file.size() - 2), Reason::truncated, "of 16000 rows");
  CHECK(resident_bytes() - before < 32 << 20);
}

TEST_CASE("jpeg: the memory and the scans of progressive pictures are limited") {
  const Rgb picture = ramp(64, 64);
  const File file = make_jpeg(picture, {.progressive = true, .subsampled = false});
  expect(with_jpeg_size(file, 16000, 16000), Reason::too_large, "several scans");
  const PictureInfo info = probe(file, {});
  CHECK(info.working_bytes == 64 * 64 * 3 * 2);
  expect(file, Reason::too_large, "coefficients", {.working_bytes = 64 * 64 * 3 * 2 - 1});
  expect(file, Reason::too_large, "the limit is 1 MB (decode.max_memory). Raise it, or save", {.working_bytes = 1});
  expect(file, Reason::too_large, "more than 4 scans", {.max_scans = 4});

  // Repeats the last scan many times: legal, but endless work.
  std::size_t last_scan = 0;
  for (std::size_t i = 0; i + 1 < file.size(); ++i) {
    if (file[i] == 0xFF && file[i + 1] == 0xDA) last_scan = i;
  }
  File bomb = cut(file, file.size() - 2);
  for (int i = 0; i < 10'000; ++i)
    bomb.insert(bomb.end(), file.begin() + static_cast<std::ptrdiff_t>(last_scan), file.end() - 2);
  const Outcome outcome = outcome_of(bomb + File{0xFF, 0xD9});
  REQUIRE(outcome.reason.has_value());
  CHECK((*outcome.reason == Reason::too_large || *outcome.reason == Reason::corrupt_data));
  expect(file, Reason::too_large, "scans", {.max_pixels = 64 * 64 / 4 * 4, .max_scans = 3});
}

TEST_CASE("jpeg: the message about a kind that libjpeg-turbo cannot decode names the kind") {
  File file = make_jpeg(ramp(32, 32));
  const std::size_t frame = find_marker(file, 0xC0);
  File precise = file;
  precise[frame + 2] = 12;
  expect(precise, Reason::unsupported_format, "precision 12");
  File lossless = file;
  lossless[frame - 1] = 0xC3;
  expect(lossless, Reason::unsupported_format, "0xc3");
}

TEST_CASE("jpeg: real photographs decode as with libjpeg") {
  const auto folder = data_folder() / "pictures";
  if (!std::filesystem::exists(folder)) {
    MESSAGE("skipped: no test data in " << folder.string());
    return;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream stream(entry.path(), std::ios::binary);
    const File file{std::istreambuf_iterator<char>(stream), {}};
    const Outcome outcome = outcome_of(file);
    REQUIRE_MESSAGE(outcome.decoded.has_value(), entry.path().string(), ": ", outcome.detail);
    CHECK(pixels_of(*outcome.decoded) == reference_orient(plain_libjpeg(file), outcome.decoded->info.orientation));
  }
}
