#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/half.hpp"
#include "base/tensor.hpp"
#include "gpu/device.hpp"
#include "gpu/device_code.hpp"
#include "gpu/letterbox.hpp"
#include "gpu/resample_table.hpp"

namespace millrace {

/// The taps of one axis, in scratch memory of the device. The first kernel fills them.
struct ResampleTaps {
  std::int32_t *first = nullptr, *count = nullptr, *weights = nullptr;
  int taps = 0;             ///< maximum number of weights of a value
  int from = 0, to = 0;     ///< side of the raster, and of the resized picture
  int begin = 0, size = 0;  ///< the part of the `to` values that the input shows
};

/// The resampling of a letterbox. All kinds equal letterbox_cpu to the bit.
enum class Resampling {
  linear,        ///< two by two taps
  mean_of_four,  ///< OpenCV's method if both sides shrink to exactly half
  triangle_x_then_y,
  triangle_y_then_x,
};

/// A picture, or a rectangle of it, and the model input that shows it. Pointers are to device memory.
struct LetterboxRow {
  const std::uint8_t* pixels = nullptr;  ///< RGB; the distance of two rows is row_pixels
  int width = 0, height = 0, row_pixels = 0;
  LetterboxGeometry geometry;
  InputSpec spec;
  DType type = DType::f32;
  void* out = nullptr;  ///< [3, spec.height, spec.width]
  Resampling resampling = Resampling::linear;
  ResampleTaps x, y;
};

/// Returns the row for an uploaded raster and an input [3, H, W], without memory for its taps.
LetterboxRow letterbox_row(const DeviceImage& raster, const LetterboxGeometry& geometry, const InputSpec& spec,
                           const Tensor& input);

/// Operation `letterbox`: fills the inputs of all rows at once, equal to letterbox_cpu to the bit.
/// Throws std::invalid_argument unless all inputs have one size and one type, which is f32, f16 or bf16, and for more
/// than 65,535 rows.
void letterbox(Device& device, std::vector<LetterboxRow> rows);

/// Rows of a launch.
struct LetterboxJob {
  std::span<const LetterboxRow> request;  ///< for the CPU
  const LetterboxRow* rows = nullptr;     ///< the same, in device memory
  int count = 0;
  int longest_axis = 0;  ///< largest number of values of one axis, over all rows
  int width = 0, height = 0;
  DType type = DType::f32;
};

/// Returns the size of the taps, in words of 32 bits.
std::size_t tap_words(const ResampleTaps& taps);
/// Places the taps in this memory. Returns the end of them.
std::int32_t* place_taps(ResampleTaps& taps, std::int32_t* memory);

/// Fills one input on the CPU.
void letterbox_on_host(const LetterboxRow& row);
/// Runs the bodies of the kernels below for one input, one after another.
void letterbox_body(const LetterboxRow& row);
/// Queues the kernels (letterbox.cu).
void launch(const LetterboxJob& job, Stream& stream);

namespace letterbox_kernel {

/// Fills the taps of value i of the shown part of an axis.
MILLRACE_DEVICE inline void fill_taps(const LetterboxRow& picture, bool rows, int i) {
  const ResampleTaps& taps = rows ? picture.y : picture.x;
  std::int32_t* weights = taps.weights + static_cast<std::int64_t>(i) * taps.taps;
  const bool triangle = picture.spec.filter == ResizeFilter::pil_bilinear_antialias;
  const TapRange range = triangle ? triangle_taps(taps.from, taps.to, taps.begin + i, weights)
                                  : linear_taps(taps.from, taps.to, rows, taps.begin + i, weights);
  taps.first[i] = range.first;
  taps.count[i] = range.count;
}

MILLRACE_DEVICE inline int clamp(int value, int high) { return value < 0 ? 0 : value > high ? high : value; }

/// Rounds a value with 22 fraction bits to 8 bits.
MILLRACE_DEVICE inline int rounded(std::int32_t sum) { return clamp(sum >> 22, 255); }

constexpr std::int32_t half = 1 << 21;

struct Source {
  const LetterboxRow& picture;
  MILLRACE_DEVICE int at(int x, int y, int channel) const {
    const auto column = clamp(x, picture.width - 1), row = clamp(y, picture.height - 1);
    return picture.pixels[(static_cast<std::int64_t>(row) * picture.row_pixels + column) * 3 + channel];
  }
};

MILLRACE_DEVICE inline int linear(const LetterboxRow& picture, int x, int y, int channel) {
  const Source source{picture};
  const std::int32_t *wx = picture.x.weights + 2 * x, *wy = picture.y.weights + 2 * y;
  const int left = picture.x.first[x], upper = picture.y.first[y];
  const std::int32_t row0 = source.at(left, upper, channel) * wx[0] + source.at(left + 1, upper, channel) * wx[1];
  const std::int32_t row1 =
      source.at(left, upper + 1, channel) * wx[0] + source.at(left + 1, upper + 1, channel) * wx[1];
  return (((wy[0] * (row0 >> 4)) >> 16) + ((wy[1] * (row1 >> 4)) >> 16) + 2) >> 2;
}

MILLRACE_DEVICE inline int mean_of_four(const LetterboxRow& picture, int x, int y, int channel) {
  const Source source{picture};
  return (source.at(2 * x, 2 * y, channel) + source.at(2 * x + 1, 2 * y, channel) +
          source.at(2 * x, 2 * y + 1, channel) + source.at(2 * x + 1, 2 * y + 1, channel) + 2) >>
         2;
}

/// Both passes at once. Results of the first pass are rounded to 8 bits, because Pillow stores them so.
MILLRACE_DEVICE inline int triangle(const LetterboxRow& picture, int x, int y, int channel) {
  const Source source{picture};
  const bool x_first = picture.resampling == Resampling::triangle_x_then_y;
  const ResampleTaps &inner = x_first ? picture.x : picture.y, &outer = x_first ? picture.y : picture.x;
  const int i = x_first ? x : y, o = x_first ? y : x;
  const std::int32_t *inner_weights = inner.weights + static_cast<std::int64_t>(i) * inner.taps,
                     *outer_weights = outer.weights + static_cast<std::int64_t>(o) * outer.taps;
  std::int32_t total = half;
  for (int k = 0; k < outer.count[o]; ++k) {
    std::int32_t sum = half;
    for (int l = 0; l < inner.count[i]; ++l) {
      const int across = inner.first[i] + l, along = outer.first[o] + k;
      sum += source.at(x_first ? across : along, x_first ? along : across, channel) * inner_weights[l];
    }
    total += rounded(sum) * outer_weights[k];
  }
  return rounded(total);
}

}  // namespace letterbox_kernel

/// Returns the normalised value at column x, row y of a plane. All taps must be filled.
MILLRACE_DEVICE inline float letterbox_value(const LetterboxRow& picture, int x, int y, int plane) {
  const auto p = static_cast<std::size_t>(plane);
  const auto normalised = [&](float level) {
    return (level * picture.spec.scale - picture.spec.mean[p]) / picture.spec.std[p];
  };
  const int column = x - picture.geometry.left, row = y - picture.geometry.top;
  if (column < 0 || row < 0 || column >= picture.geometry.resized_width || row >= picture.geometry.resized_height)
    return normalised(picture.spec.pad[p]);
  const int channel = picture.spec.bgr ? 2 - plane : plane;
  const int i = column - picture.x.begin, j = row - picture.y.begin;
  switch (picture.resampling) {
    case Resampling::linear:
      return normalised(static_cast<float>(letterbox_kernel::linear(picture, i, j, channel)));
    case Resampling::mean_of_four:
      return normalised(static_cast<float>(letterbox_kernel::mean_of_four(picture, column, row, channel)));
    default:
      return normalised(static_cast<float>(letterbox_kernel::triangle(picture, i, j, channel)));
  }
}

namespace letterbox_kernel {

// What the kernels do for one picture, on the host: one thread after another.

inline void fill_all_taps(const LetterboxRow& picture) {
  for (int i = 0; i < picture.x.size; ++i) fill_taps(picture, false, i);
  for (int i = 0; i < picture.y.size; ++i) fill_taps(picture, true, i);
}

inline void fill_input(const LetterboxRow& picture) {
  std::int64_t at = 0;
  for (int plane = 0; plane < 3; ++plane) {
    for (int y = 0; y < picture.spec.height; ++y) {
      for (int x = 0; x < picture.spec.width; ++x, ++at) {
        const float value = letterbox_value(picture, x, y, plane);
        if (picture.type == DType::f32) {
          static_cast<float*>(picture.out)[at] = value;
        } else {
          static_cast<std::uint16_t*>(picture.out)[at] = picture.type == DType::f16 ? to_f16(value) : to_bf16(value);
        }
      }
    }
  }
}

}  // namespace letterbox_kernel

}  // namespace millrace
