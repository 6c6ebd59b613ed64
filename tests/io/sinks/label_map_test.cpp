#include "io/sinks/label_map.hpp"

#include <doctest/doctest.h>
#include <spng.h>

#include <memory>
#include <random>
#include <stdexcept>

#include "io/results/rle.hpp"
#include "io/sinks/image_write.hpp"
#include "io/sinks/mask_spans.hpp"

namespace millrace {
namespace {

struct Grey16 {
  int width = 0, height = 0;
  std::vector<std::uint16_t> pixels;
};

Grey16 read_png(const std::vector<std::uint8_t>& bytes) {
  const std::unique_ptr<spng_ctx, decltype(&spng_ctx_free)> context(spng_ctx_new(0), spng_ctx_free);
  REQUIRE(spng_set_png_buffer(context.get(), bytes.data(), bytes.size()) == 0);
  spng_ihdr header{};
  REQUIRE(spng_get_ihdr(context.get(), &header) == 0);
  CHECK(header.bit_depth == 16);
  CHECK(header.color_type == SPNG_COLOR_TYPE_GRAYSCALE);
  Grey16 picture{static_cast<int>(header.width), static_cast<int>(header.height), {}};
  std::size_t size = 0;
  REQUIRE(spng_decoded_image_size(context.get(), SPNG_FMT_PNG, &size) == 0);
  picture.pixels.resize(size / 2);
  REQUIRE(spng_decode_image(context.get(), picture.pixels.data(), size, SPNG_FMT_PNG, 0) == 0);
  return picture;
}

}  // namespace

TEST_CASE("a label map numbers objects in the order of the line, with higher scores on top") {
  std::mt19937 random(11);
  const std::vector<std::pair<int, int>> sizes{{1, 1}, {1, 9}, {9, 1}, {2, 31}, {3, 32}, {3, 33}, {65, 64}, {101, 97}};
  for (const auto& [width, height] : sizes) {
    for (const int count : {0, 1, 7}) {
      const auto pixels = static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
      std::vector<Object> objects;
      std::vector<std::vector<std::uint8_t>> masks;
      for (int i = 0; i < count; ++i) {
        Object object;
        object.score = static_cast<float>(random() % 4) / 4;  // ties are likely
        std::vector<std::uint8_t> mask(pixels);
        const auto share = random() % 10;
        for (auto& pixel : mask) pixel = random() % 10 < share ? 1 : 0;
        if (i == 3) {
          std::fill(mask.begin(), mask.end(), std::uint8_t{0});  // an object without a mask
        } else {
          object.rle_counts = rle_encode(mask, width, height);
        }
        objects.push_back(object);
        masks.push_back(mask);
      }
      const Grey16 map = read_png(encode_label_map(width, height, objects));
      REQUIRE(map.width == width);
      REQUIRE(map.height == height);
      int wrong = 0;
      for (std::size_t p = 0; p < pixels; ++p) {
        std::uint16_t expected = 0;
        float best = -1;
        for (std::size_t i = 0; i < objects.size(); ++i) {
          if (masks[i][p] == 1 && objects[i].score > best)
            best = objects[i].score, expected = static_cast<std::uint16_t>(i + 1);
        }
        wrong += map.pixels[p] != expected ? 1 : 0;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a label map holds 65,535 objects and refuses more") {
  std::vector<Object> objects(65'535);
  const std::vector<std::uint8_t> all(4, 1);
  for (auto& object : objects) object.rle_counts = rle_encode(all, 2, 2);
  objects.back().score = 1;
  CHECK(read_png(encode_label_map(2, 2, objects)).pixels == std::vector<std::uint16_t>(4, 65'535));
  objects.emplace_back();
  CHECK_THROWS_WITH_AS(encode_label_map(2, 2, objects), doctest::Contains("65,535"), std::invalid_argument);
}

TEST_CASE("a label map of 48 megapixels is written row by row") {
  const int width = 8000, height = 6000;
  Object object;
  object.rle_counts = {6000 * 10 + 5, 100, 6000 * 7989 + 5895};  // rows 5 to 104 of column 10
  const auto bytes = encode_label_map(width, height, {&object, 1});
  CHECK(bytes.size() < 1'000'000);
  const Grey16 map = read_png(bytes);
  std::int64_t inside = 0;
  for (const auto pixel : map.pixels) inside += pixel;
  CHECK(inside == 100);
  CHECK(map.pixels[5 * 8000 + 10] == 1);
  CHECK(map.pixels[104 * 8000 + 10] == 1);
}

TEST_CASE("masks whose size is not the picture's are refused") {
  Object object;
  object.rle_counts = {3};
  CHECK_THROWS_AS(encode_label_map(2, 2, {&object, 1}), std::invalid_argument);
  CHECK_THROWS_AS(column_spans(std::vector<std::uint32_t>{1, 4}, 2, 2), std::invalid_argument);
}

TEST_CASE("column spans cover the mask's pixels") {
  std::mt19937 random(5);
  for (const auto& [width, height] : std::vector<std::pair<int, int>>{{1, 1}, {1, 8}, {8, 1}, {13, 7}, {40, 3}}) {
    for (int round = 0; round < 50; ++round) {
      std::vector<std::uint8_t> mask(static_cast<std::size_t>(width * height));
      for (auto& pixel : mask) pixel = random() % 8 < static_cast<unsigned>(round % 9) ? 1 : 0;
      std::vector<std::uint8_t> drawn(mask.size());
      for (const auto& span : column_spans(rle_encode(mask, width, height), width, height)) {
        CHECK(span.begin < span.end);
        for (int y = span.begin; y < span.end; ++y) ++drawn[static_cast<std::size_t>(y * width + span.column)];
      }
      CHECK(drawn == mask);
    }
  }
}

}  // namespace millrace
