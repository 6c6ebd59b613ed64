#include "gpu/letterbox.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

#include "gpu/resample.hpp"

using namespace millrace;

namespace {

InputSpec yolox(int width = 416, int height = 416) {
  InputSpec spec;
  spec.width = width;
  spec.height = height;
  spec.bgr = true;
  return spec;
}

InputSpec ultralytics(int width = 640, int height = 640) {
  InputSpec spec;
  spec.width = width;
  spec.height = height;
  spec.rounding = SideRounding::half_even;
  spec.placement = Placement::centred;
  spec.std = {255, 255, 255};
  return spec;
}

InputSpec sam(int side = 1024) {
  InputSpec spec;
  spec.width = spec.height = side;
  spec.mode = ResizeMode::longest_side;
  spec.filter = ResizeFilter::pil_bilinear_antialias;
  spec.mean = spec.pad = {123.675F, 116.28F, 103.53F};
  spec.std = {58.395F, 57.12F, 57.375F};
  return spec;
}

std::vector<std::uint8_t> noise(int width, int height, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> pixels(3 * static_cast<std::size_t>(width) * static_cast<std::size_t>(height));
  for (auto& p : pixels) p = static_cast<std::uint8_t>(random());
  return pixels;
}

/// cv2's INTER_LINEAR by its definition, in double precision: pixel centres, clamped, no antialiasing.
double linear(const std::vector<std::uint8_t>& pixels, int width, int height, double x, double y, int channel) {
  const double cx = std::clamp(x, 0.0, width - 1.0), cy = std::clamp(y, 0.0, height - 1.0);
  const int x0 = static_cast<int>(cx), y0 = static_cast<int>(cy), x1 = std::min(x0 + 1, width - 1),
            y1 = std::min(y0 + 1, height - 1);
  const auto at = [&](int px, int py) {
    return static_cast<double>(pixels[static_cast<std::size_t>((py * width + px) * 3 + channel)]);
  };
  return (1 - (cy - y0)) * ((1 - (cx - x0)) * at(x0, y0) + (cx - x0) * at(x1, y0)) +
         (cy - y0) * ((1 - (cx - x0)) * at(x0, y1) + (cx - x0) * at(x1, y1));
}

}  // namespace

TEST_CASE("sizes and positions equal those of YOLOX, Ultralytics and SAM") {
  struct Row {
    InputSpec spec;
    int width, height, resized_width, resized_height, left, top;
  };
  // From YOLOX's preproc, Ultralytics' LetterBox(auto=False) and SAM's ResizeLongestSide.
  for (const Row& row :
       {Row{yolox(), 810, 1080, 312, 416, 0, 0}, Row{yolox(), 1920, 1080, 416, 234, 0, 0},
        Row{yolox(), 1, 1, 416, 416, 0, 0}, Row{yolox(), 32767, 1, 416, 1, 0, 0}, Row{yolox(), 1, 32767, 1, 416, 0, 0},
        Row{yolox(640, 384), 1000, 333, 640, 213, 0, 0}, Row{ultralytics(), 810, 1080, 480, 640, 80, 0},
        Row{ultralytics(), 1920, 1080, 640, 360, 0, 140}, Row{ultralytics(), 1000, 667, 640, 427, 0, 106},
        Row{ultralytics(), 1280, 5, 640, 2, 0, 319}, Row{ultralytics(), 1280, 7, 640, 4, 0, 318},
        Row{sam(), 810, 1080, 768, 1024, 0, 0}, Row{sam(), 1920, 1080, 1024, 576, 0, 0},
        Row{sam(), 2048, 3, 1024, 2, 0, 0}, Row{sam(), 3, 3, 1024, 1024, 0, 0}}) {
    CAPTURE(row.width);
    CAPTURE(row.height);
    const auto g = letterbox_geometry(row.width, row.height, row.spec);
    CHECK(g.resized_width == row.resized_width);
    CHECK(g.resized_height == row.resized_height);
    CHECK(g.left == row.left);
    CHECK(g.top == row.top);
  }
  InputSpec stretch = yolox(100, 50);
  stretch.mode = ResizeMode::stretch;
  const auto g = letterbox_geometry(10, 200, stretch);
  CHECK(g.resized_width == 100);
  CHECK(g.resized_height == 50);
  CHECK(g.scale_x == 10);
  CHECK(g.scale_y == 0.25);
  CHECK_THROWS_AS(letterbox_geometry(0, 5, stretch), std::invalid_argument);
}

TEST_CASE("the centre is cropped and padded where torchvision does it") {
  struct Row {
    int shorter_side, width, height, resized_width, resized_height, left, top;
  };
  for (const Row& row :
       {Row{232, 640, 480, 309, 232, -42, -4},  // 42.5 is rounded to even
        Row{232, 480, 640, 232, 309, -4, -42}, Row{256, 333, 1000, 256, 768, -16, -272},
        Row{224, 224, 224, 224, 224, 0, 0}, Row{225, 1, 1, 225, 225, 0, 0}, Row{227, 10, 10, 227, 227, -2, -2},  // 1.5
        Row{101, 7, 7, 101, 101, 61, 61}, Row{232, 1, 65500, 232, 15'196'000, -4, -7'597'888}}) {
    CAPTURE(row.shorter_side);
    CAPTURE(row.width);
    InputSpec spec = sam(224);
    spec.mode = ResizeMode::centre_crop;
    spec.shorter_side = row.shorter_side;
    const auto g = letterbox_geometry(row.width, row.height, spec);
    CHECK(g.resized_width == row.resized_width);
    CHECK(g.resized_height == row.resized_height);
    CHECK(g.left == row.left);
    CHECK(g.top == row.top);
    CHECK(g.scale_x == static_cast<double>(row.resized_width) / row.width);
    const Box corner{0, 0, static_cast<float>(row.width), static_cast<float>(row.height)};
    CHECK(g.to_picture(g.to_input(corner)) == corner);
    spec.filter = ResizeFilter::cv2_linear;
    CHECK_THROWS_AS(letterbox_geometry(row.width, row.height, spec), std::invalid_argument);
  }
}

TEST_CASE("of a picture resized to millions of columns only the visible part is computed") {
  InputSpec spec = sam(8);
  spec.mode = ResizeMode::centre_crop;
  spec.shorter_side = 1 << 12;
  const std::vector<std::uint8_t> pixels(3 * 65500, 50);
  std::vector<float> input(3 * 8 * 8);
  // The whole resized picture would need 3 TB.
  letterbox_cpu({pixels.data(), 65500, 1}, letterbox_geometry(65500, 1, spec), spec, input.data());
  CHECK(input.front() == (50 - spec.mean[0]) / spec.std[0]);
  CHECK(input.back() == (50 - spec.mean[2]) / spec.std[2]);
}

TEST_CASE("boxes are converted to the input and back, and clipped to the picture") {
  for (const InputSpec& spec : {yolox(), ultralytics(), sam()}) {
    for (const auto& [width, height] : {std::pair{810, 1080}, {1, 1}, {32767, 1}, {1000, 667}, {5, 3000}}) {
      const auto g = letterbox_geometry(width, height, spec);
      const auto w = static_cast<float>(width), h = static_cast<float>(height);
      const Box box{0.1F * w, 0.2F * h, 0.7F * w, 0.9F * h}, back = g.to_picture(g.to_input(box));
      CHECK(back.x0 == doctest::Approx(box.x0).epsilon(1e-4));
      CHECK(back.y0 == doctest::Approx(box.y0).epsilon(1e-4));
      CHECK(back.x1 == doctest::Approx(box.x1).epsilon(1e-4));
      CHECK(back.y1 == doctest::Approx(box.y1).epsilon(1e-4));
      CHECK(g.to_picture({-1e9F, -1e9F, 1e9F, 1e9F}) == Box{0, 0, w, h});
      CHECK(g.to_picture({1e9F, 1e9F, 2e9F, 2e9F}) == Box{w, h, w, h});
    }
  }
  const auto g = letterbox_geometry(1920, 1080, ultralytics());
  CHECK(g.to_input({0, 0, 1920, 1080}) == Box{0, 140, 640, 500});
}

TEST_CASE("boxes are converted to the input as defined, in double precision, and rounded once") {
  InputSpec stretch = yolox(100, 50);
  stretch.mode = ResizeMode::stretch;
  std::mt19937 random(4);
  std::uniform_real_distribution<float> uniform(-0.1F, 1.1F);
  for (const InputSpec& spec : {yolox(), yolox(640, 384), ultralytics(), ultralytics(640, 384), sam(), stretch}) {
    for (const auto& [width, height] :
         {std::pair{810, 1080}, {1, 1}, {32767, 1}, {1000, 667}, {5, 3000}, {1920, 1080}}) {
      CAPTURE(width);
      CAPTURE(height);
      const auto g = letterbox_geometry(width, height, spec);
      // YOLOX scales by the ratio, the others by the resized sides.
      // Ultralytics centres. An odd pixel is added on the right or at the bottom.
      const bool by_ratio = spec.mode == ResizeMode::letterbox && spec.rounding == SideRounding::down;
      const double ratio = std::min(spec.width / static_cast<double>(width), spec.height / static_cast<double>(height));
      const double scale_x = by_ratio ? ratio : g.resized_width / static_cast<double>(width),
                   scale_y = by_ratio ? ratio : g.resized_height / static_cast<double>(height);
      const bool centred = spec.mode == ResizeMode::letterbox && spec.placement == Placement::centred;
      const double left = centred ? (spec.width - g.resized_width) / 2 : 0,  // NOLINT(bugprone-integer-division)
          top = centred ? (spec.height - g.resized_height) / 2 : 0;          // NOLINT(bugprone-integer-division)
      int wrong = 0;
      for (int i = 0; i < 50; ++i) {
        const auto w = static_cast<float>(width), h = static_cast<float>(height);
        const Box box{uniform(random) * w, uniform(random) * h, uniform(random) * w, uniform(random) * h};
        const Box got = g.to_input(box);
        const auto off = [](float value, double expected) {
          return std::abs(double{value} - expected) > 1.2e-7 * std::max(1.0, std::abs(expected));
        };
        wrong += static_cast<int>(off(got.x0, double{box.x0} * scale_x + left)) +
                 static_cast<int>(off(got.y0, double{box.y0} * scale_y + top)) +
                 static_cast<int>(off(got.x1, double{box.x1} * scale_x + left)) +
                 static_cast<int>(off(got.y1, double{box.y1} * scale_y + top));
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("the input tensor equals the definition: place, padding, colour order, normalisation") {
  for (const bool reduced : {false, true}) {
    for (InputSpec spec : {yolox(96, 64), ultralytics(64, 96), sam(80)}) {
      spec.scale = 0.5F;
      spec.mean = {10, 20, 30};
      spec.std = {2, 3, 4};
      spec.pad = {100, 110, 120};
      for (const auto& [width, height] : {std::pair{1, 1}, {1, 50}, {50, 1}, {64, 96}, {37, 23}, {150, 149}}) {
        CAPTURE(width);
        CAPTURE(height);
        CAPTURE(spec.bgr);
        const auto pixels = noise(width, height, static_cast<unsigned>(width));
        const auto g = letterbox_geometry(reduced ? 4 * width : width, reduced ? 4 * height : height, spec);
        std::vector<float> out(3 * static_cast<std::size_t>(spec.width) * static_cast<std::size_t>(spec.height), -1e9F);
        letterbox_cpu({pixels.data(), width, height}, g, spec, out.data());
        const auto triangle = resample_triangle({pixels.data(), width, height}, g.resized_width, g.resized_height);
        double worst = 0;
        for (int c = 0; c < 3; ++c) {
          const int channel = spec.bgr ? 2 - c : c;
          const auto i = static_cast<std::size_t>(c);
          for (int y = 0; y < spec.height; ++y) {
            for (int x = 0; x < spec.width; ++x) {
              const int rx = x - g.left, ry = y - g.top;
              double level = double{spec.pad[i]};
              double tolerance = 1e-3;
              if (rx >= 0 && ry >= 0 && rx < g.resized_width && ry < g.resized_height) {
                if (spec.filter == ResizeFilter::cv2_linear) {
                  level = linear(pixels, width, height, (rx + 0.5) * width / g.resized_width - 0.5,
                                 (ry + 0.5) * height / g.resized_height - 0.5, channel);
                  tolerance = 1.01;  // cv2 works in fixed point with 11 fraction bits
                } else {
                  level = triangle[static_cast<std::size_t>((ry * g.resized_width + rx) * 3 + channel)];
                }
              }
              const double value = double{out[static_cast<std::size_t>((c * spec.height + y) * spec.width + x)]};
              const double got = (value * double{spec.std[i]} + double{spec.mean[i]}) / double{spec.scale};
              worst = std::max(worst, std::abs(got - level) / tolerance);
            }
          }
        }
        CHECK(worst <= 1);
      }
    }
  }
}

TEST_CASE("a picture of the resized size is only normalised") {
  const InputSpec spec = sam(8);
  const auto pixels = noise(8, 6, 1);
  std::vector<float> out(3 * 64);
  letterbox_cpu({pixels.data(), 8, 6}, letterbox_geometry(8, 6, spec), spec, out.data());
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t i = 0; i < 48; ++i)
      CHECK(out[c * 64 + i] == (static_cast<float>(pixels[3 * i + c]) - spec.mean[c]) / spec.std[c]);
    for (std::size_t i = 48; i < 64; ++i) CHECK(out[c * 64 + i] == 0);
  }
}

TEST_CASE("missing pixels, and a geometry for another input, are refused") {
  const auto pixels = noise(4, 4, 1);
  std::vector<float> out(3 * 16 * 16);
  CHECK_THROWS_AS(letterbox_cpu({nullptr, 4, 4}, letterbox_geometry(4, 4, yolox(16, 16)), yolox(16, 16), out.data()),
                  std::invalid_argument);
  CHECK_THROWS_AS(
      letterbox_cpu({pixels.data(), 4, 4}, letterbox_geometry(4, 4, yolox(32, 32)), yolox(16, 16), out.data()),
      std::invalid_argument);
}
