#include "io/sinks/overlay.hpp"

#include <doctest/doctest.h>

// jpeglib.h needs FILE to be declared.
#include <cstdio>

#include <jpeglib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>

#include "io/results/rle.hpp"
#include "io/sinks/image_write.hpp"
#include "io/sinks/overlay_text.hpp"

namespace millrace {
namespace {

PixelBuffer grey_picture(int width, int height, int value = 128) {
  const auto bytes = std::size_t{3} * static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
  PixelBuffer picture{width, height,
                      std::shared_ptr<std::uint8_t>(new std::uint8_t[bytes], std::default_delete<std::uint8_t[]>())};
  std::memset(picture.data.get(), value, bytes);
  return picture;
}

PictureInfo info_of(int width, int height, int reduction = 1) {
  PictureInfo info;
  info.width = width;
  info.height = height;
  info.reduction = reduction;
  info.pixel_width = (width + reduction - 1) / reduction;
  info.pixel_height = (height + reduction - 1) / reduction;
  return info;
}

Colour pixel_at(const PixelBuffer& picture, int x, int y) {
  const auto* p = picture.data.get() + 3 * (static_cast<std::ptrdiff_t>(y) * picture.width + x);
  return {p[0], p[1], p[2]};
}

bool same(Colour a, Colour b) { return a.red == b.red && a.green == b.green && a.blue == b.blue; }

Object object_at(float x, float y, float width, float height, float score, std::string name = "person",
                 int class_id = 0) {
  Object object;
  object.x = x;
  object.y = y;
  object.width = width;
  object.height = height;
  object.score = score;
  object.name = std::move(name);
  object.class_id = class_id;
  return object;
}

std::vector<Object> random_objects(std::mt19937& random, int width, int height, int count) {
  std::vector<Object> objects;
  const auto in = [&](double low, double high) {
    return static_cast<float>(std::uniform_real_distribution<>(low, high)(random));
  };
  const std::vector<std::string> names{
      "person",      "traffic light", "x", "", "a name without any end in sight, however long the picture is",
      "\xE7\x8A\xAC"};
  for (int i = 0; i < count; ++i) {
    // Some boxes extend beyond the picture, some are empty.
    objects.push_back(object_at(in(-0.2, 1.1) * static_cast<float>(width), in(-0.2, 1.1) * static_cast<float>(height),
                                in(0, 0.8) * static_cast<float>(width), in(0, 0.8) * static_cast<float>(height),
                                in(0, 1), names[random() % names.size()], static_cast<int>(random() % 90)));
  }
  return objects;
}

// The contrast ratio of WCAG 2.1, written again from its text.
double reference_contrast(Colour a, Colour b) {
  const auto light = [](Colour c) {
    double sum = 0;
    const double weights[] = {0.2126, 0.7152, 0.0722};
    const double channels[] = {c.red / 255.0, c.green / 255.0, c.blue / 255.0};
    for (int i = 0; i < 3; ++i) {
      sum += weights[i] * (channels[i] <= 0.04045 ? channels[i] / 12.92 : std::pow((channels[i] + 0.055) / 1.055, 2.4));
    }
    return sum + 0.05;
  };
  return std::max(light(a), light(b)) / std::min(light(a), light(b));
}

}  // namespace

TEST_CASE("text has enough contrast on every plate") {
  for (int id = -3; id < 1000; ++id) {
    const Colour plate = class_colour(id);
    CHECK(reference_contrast(text_colour(plate), plate) >= 4.5);
    CHECK(contrast_ratio(text_colour(plate), plate) == doctest::Approx(reference_contrast(text_colour(plate), plate)));
  }
  for (int r = 0; r < 256; r += 5) {
    for (int g = 0; g < 256; g += 5) {
      for (int b = 0; b < 256; b += 5) {
        const Colour plate{static_cast<std::uint8_t>(r), static_cast<std::uint8_t>(g), static_cast<std::uint8_t>(b)};
        CHECK(reference_contrast(text_colour(plate), plate) >= 4.5);
      }
    }
  }
  CHECK(contrast_ratio({0, 0, 0}, {255, 255, 255}) == doctest::Approx(21));
  CHECK(contrast_ratio({9, 9, 9}, {9, 9, 9}) == doctest::Approx(1));
}

TEST_CASE("neighbouring classes have different colours, also for colour-blind people") {
  // Full dichromacy in linear RGB: Machado, Oliveira, Fernandes, "A Physiologically-based Model for Simulation of Color
  // Vision Deficiency", 2009, table 1, severity 1.0.
  const double views[4][9] = {
      {1, 0, 0, 0, 1, 0, 0, 0, 1},
      {0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998},
      {0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.011820, 0.042940, 0.968881},
      {1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.303900}};
  const auto lab = [](Colour c, const double* view) {  // CIELAB under D65
    double linear[3], seen[3], xyz[3];
    const std::uint8_t channels[] = {c.red, c.green, c.blue};
    for (int i = 0; i < 3; ++i)
      linear[i] = channels[i] <= 10 ? channels[i] / 3294.6 : std::pow((channels[i] / 255.0 + 0.055) / 1.055, 2.4);
    for (int i = 0; i < 3; ++i) {
      seen[i] =
          std::clamp(view[3 * i] * linear[0] + view[3 * i + 1] * linear[1] + view[3 * i + 2] * linear[2], 0.0, 1.0);
    }
    const double to_xyz[9] = {0.4124 / 0.9505, 0.3576 / 0.9505, 0.1805 / 0.9505, 0.2126,        0.7152,
                              0.0722,          0.0193 / 1.089,  0.1192 / 1.089,  0.9505 / 1.089};
    for (int i = 0; i < 3; ++i) {
      const double t = to_xyz[3 * i] * seen[0] + to_xyz[3 * i + 1] * seen[1] + to_xyz[3 * i + 2] * seen[2];
      xyz[i] = t > 216.0 / 24389 ? std::cbrt(t) : (24389.0 / 27 * t + 16) / 116;
    }
    return std::array<double, 3>{116 * xyz[1] - 16, 500 * (xyz[0] - xyz[1]), 200 * (xyz[1] - xyz[2])};
  };
  for (const auto& view : views) {
    for (int a = 0; a < 21; ++a) {
      for (int b = 0; b < a; ++b) {
        const auto first = lab(class_colour(a), view), second = lab(class_colour(b), view);
        const double difference = std::hypot(first[0] - second[0], first[1] - second[1], first[2] - second[2]);
        CAPTURE(a);
        CAPTURE(b);
        CHECK(difference >= (a < 7 ? 10 : 3));  // 2.3 is just noticeable
      }
    }
  }
  CHECK(same(class_colour(3), class_colour(24)));
}

TEST_CASE("font height follows the longer side") {
  CHECK(overlay_font_height(1, 1) == 12);
  CHECK(overlay_font_height(320, 240) == 12);
  CHECK(overlay_font_height(1080, 1920) == 29);
  CHECK(overlay_font_height(8000, 6000) == 120);
}

TEST_CASE("names are written in letters that the font has") {
  CHECK(label_text(object_at(0, 0, 1, 1, 0.914F, "car")) == "car 0.91");
  CHECK(label_text(object_at(0, 0, 1, 1, 1, "car")) == "car 1.00");
  CHECK(label_text(object_at(0, 0, 1, 1, 3.779F, "nose")) == "nose 3.78");
  CHECK(label_text(object_at(0, 0, 1, 1, 0.049F, "car")) == "car 0.05");
  CHECK(label_text(object_at(0, 0, 1, 1, 0.5F, "Fu\xC3\x9Fg\xC3\xA4nger \xC5\xBBuk")) == "Fusganger Zuk 0.50");
  CHECK(label_text(object_at(0, 0, 1, 1, 0.5F, "\xE7\x8A\xAC", 16)) == "class 16 0.50");
  CHECK(label_text(object_at(0, 0, 1, 1, 0.5F, "", 3)) == "class 3 0.50");
  CHECK(label_text(object_at(0, 0, 1, 1, 0.5F, "\xFF", 3)) == "class 3 0.50");
  CHECK(label_text(object_at(0, 0, 1, 1, 0.5F, "a\nb", 3)) == "class 3 0.50");
}

TEST_CASE("labels stay inside the picture, fit their text and are as high as the font") {
  std::mt19937 random(1);
  const std::vector<std::pair<int, int>> sizes{{1, 1},       {1, 500},    {500, 1},    {12, 12},
                                               {60, 40},     {100, 20},   {33, 700},   {320, 240},
                                               {1920, 1080}, {641, 4799}, {8000, 600}, {8000, 6000}};
  for (const auto& [width, height] : sizes) {
    for (const int count : {0, 1, 5, 60, 400}) {
      for (const int reduction : {1, 3}) {
        const auto objects = random_objects(random, width * reduction, height * reduction, count);
        const auto labels = place_labels(width, height, reduction, objects);
        const LabelFont font(overlay_font_height(width, height));
        CHECK(labels.size() <= 300);
        std::set<std::size_t> seen;
        float last = 2;
        int wrong = 0;
        for (const auto& label : labels) {
          wrong +=
              label.x < 0 || label.y < 0 || label.x + label.width > width || label.y + label.height > height ? 1 : 0;
          wrong +=
              label.height < overlay_font_height(width, height) || label.width != font.plate_width(label.text) ? 1 : 0;
          wrong +=
              label.text.empty() || !seen.insert(label.object).second || objects[label.object].score > last ? 1 : 0;
          last = objects[label.object].score;
        }
        CHECK(wrong == 0);
        if (width >= 320 && height >= 240) CHECK(labels.size() == static_cast<std::size_t>(std::min(count, 300)));
      }
    }
  }
}

TEST_CASE("labels avoid each other if there is room") {
  // Five objects in one place: each label finds a place of its own.
  std::vector<Object> objects;
  for (int i = 0; i < 5; ++i) objects.push_back(object_at(800, 500, 300, 200, 0.5F + 0.1F * static_cast<float>(i)));
  const auto labels = place_labels(1920, 1080, 1, objects);
  REQUIRE(labels.size() == 5);
  CHECK(labels[0].object == 4);
  for (std::size_t a = 0; a < labels.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const bool apart = labels[a].x >= labels[b].x + labels[b].width || labels[b].x >= labels[a].x + labels[a].width ||
                         labels[a].y >= labels[b].y + labels[b].height || labels[b].y >= labels[a].y + labels[a].height;
      CHECK(apart);
    }
  }
  CHECK(labels[0].x == 800);
  CHECK(labels[0].y + labels[0].height == 500);
}

TEST_CASE("the text fills its plate without leaving it") {
  for (const int height : {12, 13, 29, 47, 48, 120}) {
    const LabelFont font(height);
    const cv::Mat coverage = font.coverage("Egypt 0.91");
    REQUIRE(coverage.cols == font.plate_width("Egypt 0.91"));
    REQUIRE(coverage.rows == font.plate_height());
    int top = coverage.rows, bottom = -1, edge = 0;
    for (int y = 0; y < coverage.rows; ++y) {
      for (int x = 0; x < coverage.cols; ++x) {
        if (coverage.at<std::uint8_t>(y, x) < 64) continue;
        top = std::min(top, y);
        bottom = std::max(bottom, y);
        edge += x == 0 || y == 0 || x + 1 == coverage.cols || y + 1 == coverage.rows ? 1 : 0;
      }
    }
    CHECK(edge == 0);
    CHECK(bottom - top + 1 >= height);
  }
}

TEST_CASE("masks are tinted inside, outlined at their edge, and nothing else changes") {
  const int width = 200, height = 150;
  std::vector<std::uint8_t> mask(width * height);
  for (int y = 60; y < 120; ++y) std::fill_n(mask.begin() + y * width + 50, 100, std::uint8_t{1});
  Object object = object_at(50, 60, 100, 60, 0.9F);
  object.rle_counts = rle_encode(mask, width, height);
  const PixelBuffer picture = grey_picture(width, height);
  draw_overlay(picture, info_of(width, height), {&object, 1});
  const Colour colour = class_colour(0);
  CHECK(same(pixel_at(picture, 50, 119), colour));
  CHECK(same(pixel_at(picture, 149, 60), colour));
  CHECK(same(pixel_at(picture, 100, 119), colour));
  const Colour inside = pixel_at(picture, 100, 90);
  CHECK(inside.red == (128 * 60 + colour.red * 40 + 50) / 100);
  CHECK(inside.blue == (128 * 60 + colour.blue * 40 + 50) / 100);
  for (const auto& [x, y] : std::vector<std::pair<int, int>>{{49, 90}, {150, 90}, {100, 120}, {0, 0}, {199, 149}}) {
    CHECK(same(pixel_at(picture, x, y), {128, 128, 128}));
  }
}

TEST_CASE("a reduced raster is tinted where the mask covers the middle of a pixel") {
  const int width = 103, height = 71;
  std::mt19937 random(2);
  std::vector<std::uint8_t> mask(width * height);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x)
      mask[static_cast<std::size_t>(y * width + x)] =
          (x - 60) * (x - 60) + (y - 40) * (y - 40) < 1200 || x > 97 ? 1 : 0;
  }
  for (const int reduction : {1, 2, 3, 4, 7, 50}) {
    const PictureInfo info = info_of(width, height, reduction);
    Object object = object_at(0, 0, 0, 0, 0.5F);
    object.rle_counts = rle_encode(mask, width, height);
    const PixelBuffer with = grey_picture(info.pixel_width, info.pixel_height);
    draw_overlay(with, info, {&object, 1});
    object.rle_counts.clear();
    const PixelBuffer without = grey_picture(info.pixel_width, info.pixel_height);
    draw_overlay(without, info, {&object, 1});
    const auto labels = place_labels(info.pixel_width, info.pixel_height, reduction, {&object, 1});
    int wrong = 0;
    for (int y = 0; y < info.pixel_height; ++y) {
      for (int x = 0; x < info.pixel_width; ++x) {
        const bool hidden =
            (x <= 1 && y <= 1) || std::any_of(labels.begin(), labels.end(), [x = x, y = y](const OverlayLabel& l) {
              return x >= l.x && x < l.x + l.width && y >= l.y && y < l.y + l.height;
            });
        if (hidden) continue;
        const int px = std::min(x * reduction + reduction / 2, width - 1),
                  py = std::min(y * reduction + reduction / 2, height - 1);
        const bool drawn = !same(pixel_at(with, x, y), pixel_at(without, x, y));
        wrong += drawn != (mask[static_cast<std::size_t>(py * width + px)] == 1) ? 1 : 0;
      }
    }
    CAPTURE(reduction);
    CHECK(wrong == 0);
  }
}

TEST_CASE("pictures of every size are drawn, with objects across all edges") {
  std::mt19937 random(4);
  for (const auto& [width, height] :
       std::vector<std::pair<int, int>>{{1, 1}, {1, 90}, {90, 1}, {2, 3}, {31, 17}, {320, 240}, {1000, 700}}) {
    auto objects = random_objects(random, width, height, 20);
    const std::vector<std::uint8_t> all(static_cast<std::size_t>(width * height), 1);
    for (std::size_t i = 0; i < objects.size(); i += 2) objects[i].rle_counts = rle_encode(all, width, height);
    const PixelBuffer first = grey_picture(width, height), second = grey_picture(width, height);
    draw_overlay(first, info_of(width, height), objects);
    draw_overlay(second, info_of(width, height), objects);
    CHECK(std::memcmp(first.data.get(), second.data.get(), std::size_t{3} * all.size()) == 0);
  }
  // NaN and infinity, which segment lines refuse, and huge numbers do no harm here.
  std::vector<Object> odd;
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -3e38F, 3e38F}) {
    odd.push_back(object_at(bad, 1, 5, bad, 0.5F));
    odd.push_back(object_at(bad, bad, bad, bad, bad));
    odd.push_back(object_at(3, 3, 5, 5, bad));
  }
  draw_overlay(grey_picture(320, 240), info_of(320, 240), odd);
  for (const auto& object : odd) {
    const OverlayBox box = overlay_box(object, 320, 240, 1);
    CHECK((box.left >= 0 && box.top >= 0 && box.right <= 320 && box.bottom <= 240 && box.left < box.right &&
           box.top < box.bottom));
  }
  Object wrong = object_at(0, 0, 1, 1, 1);
  wrong.rle_counts = {5};
  CHECK_THROWS_AS(draw_overlay(grey_picture(2, 2), info_of(2, 2), {&wrong, 1}), std::invalid_argument);
}

TEST_CASE("pixels of a class are tinted, outlined where classes meet, and the classes are listed") {
  const int width = 200, height = 150;
  const std::vector<std::string> names{"background", "vessel", "", "disc"};
  std::vector<std::uint8_t> map(static_cast<std::size_t>(width * height));
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x)
      map[static_cast<std::size_t>(y * width + x)] = x < 100 ? 0 : x >= 190 ? 255 : y < 75 ? 1 : 3;  // 255: a hole
  }
  const auto owner = std::make_shared<std::vector<std::uint8_t>>(map);
  const LabelsInMemory labels(std::shared_ptr<const std::uint8_t[]>(owner, owner->data()), owner->size());
  const PixelBuffer picture = grey_picture(width, height);
  draw_classes(picture, labels, names);
  for (const auto& [x, y, label] : {std::tuple{150, 40, 1}, {150, 120, 3}}) {
    const Colour colour = class_colour(label), found = pixel_at(picture, x, y);
    CHECK(found.red == (128 * 60 + colour.red * 40 + 50) / 100);
    CHECK(found.green == (128 * 60 + colour.green * 40 + 50) / 100);
  }
  CHECK(same(pixel_at(picture, 100, 40), class_colour(1)));
  CHECK(same(pixel_at(picture, 150, 74), class_colour(1)));
  CHECK(same(pixel_at(picture, 150, 75), class_colour(3)));
  CHECK(same(pixel_at(picture, 189, 120), class_colour(3)));
  CHECK(same(pixel_at(picture, 99, 120), {128, 128, 128}));
  CHECK(same(pixel_at(picture, 195, 40), {128, 128, 128}));
  // Two plates, one below the other.
  const LabelFont font(overlay_font_height(width, height));
  CHECK(same(pixel_at(picture, font.padding, font.padding), class_colour(1)));
  CHECK(same(pixel_at(picture, font.padding, font.padding + font.plate_height()), class_colour(3)));
  CHECK(same(pixel_at(picture, font.padding, font.padding + 2 * font.plate_height()), {128, 128, 128}));
}

TEST_CASE("classes of pictures of every size are drawn, and labels of another size are refused") {
  const std::vector<std::string> names(254, "a class with a long name");
  for (const auto& [width, height] : std::vector<std::pair<int, int>>{{1, 1}, {1, 90}, {90, 1}, {31, 17}, {400, 300}}) {
    const auto owner = std::make_shared<std::vector<std::uint8_t>>(static_cast<std::size_t>(width * height));
    for (std::size_t i = 0; i < owner->size(); ++i) (*owner)[i] = static_cast<std::uint8_t>(i * 7);
    const LabelsInMemory labels(std::shared_ptr<const std::uint8_t[]>(owner, owner->data()), owner->size());
    draw_classes(grey_picture(width, height), labels, names);
    CHECK_THROWS_AS(draw_classes(grey_picture(width, height + 1), labels, names), std::invalid_argument);
    CHECK_THROWS_AS(draw_classes(grey_picture(width + 1, height), labels, names), std::invalid_argument);
  }
}

TEST_CASE("JPEG: size, colours at full resolution, and refused sizes") {
  for (const auto& [width, height] : std::vector<std::pair<int, int>>{{1, 1}, {7, 5}, {64, 48}, {3000, 2}}) {
    std::vector<std::uint8_t> rgb(static_cast<std::size_t>(3 * width * height));
    for (std::size_t i = 0; i < rgb.size(); i += 3) rgb[i] = 200, rgb[i + 1] = 30, rgb[i + 2] = 90;
    const auto bytes = encode_jpeg(rgb.data(), width, height, 90);
    jpeg_decompress_struct codec{};
    jpeg_error_mgr errors{};
    codec.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&codec);
    jpeg_mem_src(&codec, bytes.data(), bytes.size());
    REQUIRE(jpeg_read_header(&codec, TRUE) == JPEG_HEADER_OK);
    CHECK(static_cast<int>(codec.image_width) == width);
    CHECK(static_cast<int>(codec.image_height) == height);
    CHECK(codec.max_h_samp_factor == 1);
    CHECK(codec.max_v_samp_factor == 1);
    jpeg_start_decompress(&codec);
    std::vector<std::uint8_t> row(static_cast<std::size_t>(3 * width));
    auto* pointer = row.data();
    while (codec.output_scanline < codec.output_height) jpeg_read_scanlines(&codec, &pointer, 1);
    CHECK(std::abs(row[0] - 200) <= 3);
    CHECK(std::abs(row[1] - 30) <= 3);
    CHECK(std::abs(row[2] - 90) <= 3);
    jpeg_finish_decompress(&codec);
    jpeg_destroy_decompress(&codec);
  }
  const std::uint8_t pixel[3] = {};
  CHECK_THROWS_AS(encode_jpeg(pixel, 0, 1, 90), std::invalid_argument);
  CHECK_THROWS_AS(encode_jpeg(pixel, 1, 65'501, 90), std::invalid_argument);
}

}  // namespace millrace
