#include "gpu/letterbox.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu/clones.hpp"
#include "gpu/resample.hpp"
#include "gpu/resize_linear.hpp"

namespace millrace {

namespace {

/// Makes three planes of interleaved pixels: out[i] = (pixels[3 * x + i] * scale - mean[i]) / std[i].
/// It divides, because a product with 1 / std would have other last bits.
MILLRACE_CLONES void normalise_row(const std::uint8_t* __restrict pixels, int width, float scale, const float* mean,
                                   const float* std, float* __restrict out0, float* __restrict out1,
                                   float* __restrict out2) {
  const float mean0 = mean[0], mean1 = mean[1], mean2 = mean[2], std0 = std[0], std1 = std[1], std2 = std[2];
  for (int x = 0; x < width; ++x) {
    out0[x] = (static_cast<float>(pixels[3 * x]) * scale - mean0) / std0;
    out1[x] = (static_cast<float>(pixels[3 * x + 1]) * scale - mean1) / std1;
    out2[x] = (static_cast<float>(pixels[3 * x + 2]) * scale - mean2) / std2;
  }
}

/// Rounds ties to even. std::nearbyint would depend on the thread's rounding mode.
double round_half_even(double value) {
  const double down = std::floor(value), rest = value - down;
  if (rest != 0.5) return rest < 0.5 ? down : down + 1;
  return std::fmod(down, 2.0) == 0 ? down : down + 1;
}

int resized_side(int side, double ratio, int limit, const InputSpec& spec) {
  const double exact = side * ratio;
  double rounded = 0;
  if (spec.mode == ResizeMode::longest_side) {
    // SAM's ResizeLongestSide: int(x + 0.5).
    rounded = std::floor(exact + 0.5);
  } else {
    rounded = spec.rounding == SideRounding::down ? std::floor(exact) : round_half_even(exact);
  }
  return std::clamp(static_cast<int>(rounded), 1, limit);
}

/// Returns the padding before the picture. Like Ultralytics, subtracts 0.1, so that an odd pixel goes after it.
int padding_before(int free_pixels, const InputSpec& spec) {
  if (spec.mode != ResizeMode::letterbox || spec.placement == Placement::top_left) return 0;
  return static_cast<int>(round_half_even(free_pixels / 2.0 - 0.1));
}

LetterboxGeometry centre_crop_geometry(int picture_width, int picture_height, const InputSpec& spec) {
  if (spec.shorter_side < 1 || spec.filter != ResizeFilter::pil_bilinear_antialias)
    throw std::invalid_argument("letterbox: centre_crop needs a shorter side and the filter pil_bilinear_antialias");
  constexpr double longest = 1 << 30;  // a longer side might not fit an int
  const auto resized = [&](int side, int other) {
    // torchvision's int(size * long / short). With size * (long / short), the result could be one less.
    const double exact = static_cast<double>(static_cast<std::int64_t>(spec.shorter_side) * side) / other;
    return side <= other ? spec.shorter_side : static_cast<int>(std::min(exact, longest));
  };
  // torchvision pads before it cuts. Half the padding, rounded down, comes before the picture.
  const auto before = [](int input, int side) {
    return side < input ? (input - side) / 2 : -static_cast<int>(round_half_even((side - input) / 2.0));
  };
  LetterboxGeometry geometry;
  geometry.picture_width = picture_width;
  geometry.picture_height = picture_height;
  geometry.resized_width = resized(picture_width, picture_height);
  geometry.resized_height = resized(picture_height, picture_width);
  geometry.scale_x = static_cast<double>(geometry.resized_width) / picture_width;
  geometry.scale_y = static_cast<double>(geometry.resized_height) / picture_height;
  geometry.left = before(spec.width, geometry.resized_width);
  geometry.top = before(spec.height, geometry.resized_height);
  return geometry;
}

void check(const Image8& pixels, const LetterboxGeometry& geometry, const InputSpec& spec) {
  if (pixels.data == nullptr || pixels.width < 1 || pixels.height < 1) {
    throw std::invalid_argument("letterbox: no pixels (" + std::to_string(pixels.width) + "x" +
                                std::to_string(pixels.height) + ")");
  }
  // The resized picture is within the input. With centre_crop, it may cover the input instead.
  const bool cut = spec.mode == ResizeMode::centre_crop;
  const auto fits = [&](int before, int resized, int input) {
    const int end = before + resized;
    return resized >= 1 && ((before >= 0 && end <= input) || (cut && before <= 0 && end >= input));
  };
  if (!fits(geometry.left, geometry.resized_width, spec.width) ||
      !fits(geometry.top, geometry.resized_height, spec.height)) {
    throw std::invalid_argument("letterbox: the geometry was made for another input size than " +
                                std::to_string(spec.width) + "x" + std::to_string(spec.height));
  }
}

/// Returns the shown part of the resized picture, rows without padding.
/// `storage` owns it, unless nothing changes: then it is `pixels`.
const std::uint8_t* resize(const Image8& pixels, const LetterboxGeometry& geometry, const ShownPixels& across,
                           const ShownPixels& down, ResizeFilter filter, std::vector<std::uint8_t>& storage) {
  const int width = geometry.resized_width, height = geometry.resized_height;
  const bool whole = across.size == width && down.size == height;
  // Neither filter changes a pixel if the size stays the same.
  if (whole && width == pixels.width && height == pixels.height) return pixels.data;
  // The linear filter needs no window: only centre_crop cuts, and it requires the triangle filter.
  storage = filter == ResizeFilter::pil_bilinear_antialias
                ? resample_triangle(pixels, width, height, {across.begin, down.begin, across.size, down.size})
                : resize_linear(pixels, width, height);
  return storage.data();
}

}  // namespace

Box LetterboxGeometry::to_input(const Box& box) const {
  return {static_cast<float>(box.x0 * scale_x + left), static_cast<float>(box.y0 * scale_y + top),
          static_cast<float>(box.x1 * scale_x + left), static_cast<float>(box.y1 * scale_y + top)};
}

Box LetterboxGeometry::to_picture(const Box& box) const {
  const auto map = [](float value, int padding, double scale, int side) {
    return static_cast<float>(
        std::clamp((static_cast<double>(value) - padding) / scale, 0.0, static_cast<double>(side)));
  };
  return {map(box.x0, left, scale_x, picture_width), map(box.y0, top, scale_y, picture_height),
          map(box.x1, left, scale_x, picture_width), map(box.y1, top, scale_y, picture_height)};
}

LetterboxGeometry letterbox_geometry(int picture_width, int picture_height, const InputSpec& spec) {
  if (picture_width < 1 || picture_height < 1 || spec.width < 1 || spec.height < 1) {
    throw std::invalid_argument("letterbox: a picture of " + std::to_string(picture_width) + "x" +
                                std::to_string(picture_height) + " cannot go into an input of " +
                                std::to_string(spec.width) + "x" + std::to_string(spec.height) +
                                "; every side must be at least 1");
  }
  if (spec.mode == ResizeMode::centre_crop) return centre_crop_geometry(picture_width, picture_height, spec);
  LetterboxGeometry geometry;
  geometry.picture_width = picture_width;
  geometry.picture_height = picture_height;
  if (spec.mode == ResizeMode::stretch) {
    geometry.resized_width = spec.width;
    geometry.resized_height = spec.height;
  } else {
    const double ratio =
        std::min(static_cast<double>(spec.width) / picture_width, static_cast<double>(spec.height) / picture_height);
    geometry.resized_width = resized_side(picture_width, ratio, spec.width, spec);
    geometry.resized_height = resized_side(picture_height, ratio, spec.height, spec);
    geometry.scale_x = geometry.scale_y = ratio;
  }
  // YOLOX maps boxes by the ratio itself. The others map each axis by its rounded side.
  if (spec.mode != ResizeMode::letterbox || spec.rounding != SideRounding::down) {
    geometry.scale_x = static_cast<double>(geometry.resized_width) / picture_width;
    geometry.scale_y = static_cast<double>(geometry.resized_height) / picture_height;
  }
  geometry.left = padding_before(spec.width - geometry.resized_width, spec);
  geometry.top = padding_before(spec.height - geometry.resized_height, spec);
  return geometry;
}

void letterbox_cpu(const Image8& pixels, const LetterboxGeometry& geometry, const InputSpec& spec, float* out) {
  check(pixels, geometry, spec);
  std::vector<std::uint8_t> storage;
  const ShownPixels across = shown_pixels(geometry.left, geometry.resized_width, spec.width),
                    down = shown_pixels(geometry.top, geometry.resized_height, spec.height);
  const int width = across.size, height = down.size;
  const std::ptrdiff_t left = std::max(0, geometry.left), top = std::max(0, geometry.top);
  const std::uint8_t* resized = resize(pixels, geometry, across, down, spec.filter, storage);

  const auto input_width = static_cast<std::ptrdiff_t>(spec.width);
  const std::ptrdiff_t plane = input_width * spec.height;
  std::array<float*, 3> planes{out, out + plane, out + 2 * plane};
  std::array<float, 3> mean = spec.mean, std = spec.std;
  // First the padding: above and below the picture, then left and right of each of its rows.
  for (std::size_t i = 0; i < 3; ++i) {
    const float fill = (spec.pad[i] * spec.scale - mean[i]) / std[i];
    float* const first = planes[i] + top * input_width;
    float* const last = first + height * input_width;
    std::fill(planes[i], first, fill);
    std::fill(last, planes[i] + plane, fill);
    for (float* row = first; row != last; row += input_width) {
      std::fill(row, row + left, fill);
      std::fill(row + left + width, row + input_width, fill);
    }
  }
  // After the padding: mean, std and pad are in plane order, but the loop below goes by the order of the pixels.
  if (spec.bgr) {  // pixels are red, green, blue
    std::swap(planes[0], planes[2]);
    std::swap(mean[0], mean[2]);
    std::swap(std[0], std[2]);
  }
  for (int y = 0; y < height; ++y) {
    const std::ptrdiff_t row = (top + y) * input_width + left;
    normalise_row(resized + 3 * static_cast<std::ptrdiff_t>(y) * width, width, spec.scale, mean.data(), std.data(),
                  planes[0] + row, planes[1] + row, planes[2] + row);
  }
}

}  // namespace millrace
