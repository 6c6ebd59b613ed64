#include "io/results/rle.hpp"

#include <doctest/doctest.h>

#include <random>
#include <stdexcept>
#include <utility>

using namespace millrace;

namespace {

std::vector<std::uint8_t> random_raster(int width, int height, int density, std::mt19937& random) {
  std::vector<std::uint8_t> raster(static_cast<std::size_t>(width) * static_cast<std::size_t>(height));
  bool inside = false;
  for (auto& pixel : raster) {
    if (static_cast<int>(random() % 100) < density) inside = !inside;
    pixel = inside ? 1 : 0;
  }
  return raster;
}

}  // namespace

TEST_CASE("strings equal those of pycocotools") {
  // pycocotools.mask.frPyObjects / encode wrote each string for the counts next to it.
  const std::vector<std::pair<std::vector<std::uint32_t>, std::string>> known{
      {{12}, "<"},
      {{0, 12}, "0<"},
      {{5, 1, 6}, "516"},
      {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, "111000000000"},
      {{100, 20, 300, 5, 400, 1000, 175}, "T3d0\\9AT3So0oH"},
  };
  for (const auto& [counts, text] : known) {
    std::uint32_t sum = 0;
    for (const auto count : counts) sum += count;
    CHECK(rle_to_string(counts) == text);
    CHECK(rle_from_string(text, static_cast<int>(sum), 1) == counts);
  }
}

TEST_CASE("raster, counts and string convert both ways, and the area equals that of the raster") {
  std::mt19937 random(1);
  for (const auto& [width, height] :
       {std::pair{1, 1}, {1, 7}, {7, 1}, {5, 3}, {64, 48}, {257, 129}, {1, 70000}, {70000, 1}}) {
    for (const int density : {0, 1, 10, 50, 100}) {
      const auto raster = random_raster(width, height, density, random);
      const auto counts = rle_encode(raster, width, height);
      CHECK(rle_decode(counts, width, height) == raster);
      CHECK(rle_from_string(rle_to_string(counts), width, height) == counts);
      std::int64_t area = 0;
      for (const auto pixel : raster) area += pixel;
      CHECK(rle_area(counts) == area);
    }
  }
}

TEST_CASE("runs follow the columns") {
  const std::vector<std::uint8_t> raster{0, 1, 0,  //
                                         1, 1, 0};
  CHECK(rle_encode(raster, 3, 2) == std::vector<std::uint32_t>{1, 3, 2});
  CHECK(rle_encode(std::vector<std::uint8_t>{255, 0}, 2, 1) == std::vector<std::uint32_t>{0, 1, 1});
}

TEST_CASE("the largest counts are kept") {
  const std::vector<std::uint32_t> counts{4294967295U};
  CHECK(rle_from_string(rle_to_string(counts), 65537, 65535) == counts);
  const std::vector<std::uint32_t> far{0, 4294836224U, 1, 1, 131069};
  CHECK(rle_from_string(rle_to_string(far), 65537, 65535) == far);
}

TEST_CASE("invalid strings are refused, with any bytes") {
  for (const char* text : {"", "0", "=", "1", "P", "PPPPPPPPPP", "oooooooo0", "\x01", "12\xff", "0<0<", "<0?", "N",
                           "0000N", "12 ", "ooooooO"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(rle_from_string(text, 4, 3), std::invalid_argument);
  }
  CHECK_THROWS_AS(rle_from_string("<", 0, 12), std::invalid_argument);
  CHECK_THROWS_AS(rle_from_string("<", -4, -3), std::invalid_argument);
  CHECK_THROWS_AS(rle_decode(std::vector<std::uint32_t>{13}, 4, 3), std::invalid_argument);
  CHECK_THROWS_AS(rle_decode(std::vector<std::uint32_t>{4294967295U, 13}, 4, 3), std::invalid_argument);
  CHECK_THROWS_AS(rle_encode(std::vector<std::uint8_t>(11), 4, 3), std::invalid_argument);

  std::mt19937 random(2);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text(random() % 12, ' ');
    for (char& c : text) c = static_cast<char>(i % 2 == 0 ? '0' + random() % 64 : random() % 256);
    try {
      const auto raster = rle_decode(rle_from_string(text, 4, 3), 4, 3);
      CHECK(raster.size() == 12);
      ++accepted;
    } catch (const std::invalid_argument&) {
    }
  }
  CHECK(accepted < 20000);
}
