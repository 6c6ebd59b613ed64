#pragma once

#include <cstdint>

#include "gpu/device_code.hpp"
#include "gpu/letterbox.hpp"
#include "gpu/resample_table.hpp"

namespace millrace {

/// A ResampleTable where the kernel can read it.
struct ResampleTaps {
  const std::int32_t *first = nullptr, *count = nullptr, *weights = nullptr;
  int taps = 0;
};

/// How a letterbox resamples; all of them round as the CPU twin does, to the bit.
enum class Resampling {
  linear,        ///< two by two taps
  mean_of_four,  ///< what OpenCV does instead where both sides are halved exactly
  triangle_x_then_y,
  triangle_y_then_x,
};

/// One picture on its way into one model's input; everything by value, pointers to device memory.
struct LetterboxJob {
  const std::uint8_t* pixels = nullptr;  ///< RGB, packed
  int width = 0, height = 0;
  int resized_width = 0, resized_height = 0, left = 0, top = 0;  ///< LetterboxGeometry
  int input_width = 0, input_height = 0;
  Resampling resampling = Resampling::linear;
  ResampleTaps x, y;
  bool bgr = false;
  float scale = 1;
  float mean[3]{}, std[3]{}, fill[3]{};  ///< in plane order; fill is normalised
};

/// What a job needs beside the pixels; depends on sizes and spec alone, so pictures of one size share it.
struct LetterboxTables {
  Resampling resampling = Resampling::linear;
  ResampleTable x, y;
};

/// For a raster of width x height; it is the picture or a reduced raster of it.
LetterboxTables letterbox_tables(int width, int height, const LetterboxGeometry& geometry, const InputSpec& spec);

/// A job without pointers: pixels, x and y are to be set to where they lie on the device.
LetterboxJob letterbox_job(int width, int height, const LetterboxGeometry& geometry, const InputSpec& spec);

namespace letterbox_kernel {

MILLRACE_DEVICE inline int clamp(int value, int high) { return value < 0 ? 0 : value > high ? high : value; }

/// 22 fraction bits to 8 bits.
MILLRACE_DEVICE inline int rounded(std::int32_t sum) { return clamp(sum >> 22, 255); }

constexpr std::int32_t half = 1 << 21;

struct Source {
  const LetterboxJob& job;
  MILLRACE_DEVICE int at(int x, int y, int channel) const {
    const auto column = clamp(x, job.width - 1), row = clamp(y, job.height - 1);
    return job.pixels[(static_cast<std::int64_t>(row) * job.width + column) * 3 + channel];
  }
};

MILLRACE_DEVICE inline int linear(const LetterboxJob& job, int x, int y, int channel) {
  const Source source{job};
  const std::int32_t *wx = job.x.weights + 2 * x, *wy = job.y.weights + 2 * y;
  const int left = job.x.first[x], upper = job.y.first[y];
  const std::int32_t row0 = source.at(left, upper, channel) * wx[0] + source.at(left + 1, upper, channel) * wx[1];
  const std::int32_t row1 =
      source.at(left, upper + 1, channel) * wx[0] + source.at(left + 1, upper + 1, channel) * wx[1];
  return (((wy[0] * (row0 >> 4)) >> 16) + ((wy[1] * (row1 >> 4)) >> 16) + 2) >> 2;
}

MILLRACE_DEVICE inline int mean_of_four(const LetterboxJob& job, int x, int y, int channel) {
  const Source source{job};
  return (source.at(2 * x, 2 * y, channel) + source.at(2 * x + 1, 2 * y, channel) +
          source.at(2 * x, 2 * y + 1, channel) + source.at(2 * x + 1, 2 * y + 1, channel) + 2) >>
         2;
}

/// Both passes at once: what the first pass makes of each line is rounded to 8 bits, as if it had been stored.
MILLRACE_DEVICE inline int triangle(const LetterboxJob& job, int x, int y, int channel) {
  const Source source{job};
  const bool x_first = job.resampling == Resampling::triangle_x_then_y;
  const ResampleTaps &inner = x_first ? job.x : job.y, &outer = x_first ? job.y : job.x;
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

/// The normalised value of the input at column x, row y of a plane.
MILLRACE_DEVICE inline float letterbox_value(const LetterboxJob& job, int x, int y, int plane) {
  const int column = x - job.left, row = y - job.top;
  if (column < 0 || row < 0 || column >= job.resized_width || row >= job.resized_height) return job.fill[plane];
  const int channel = job.bgr ? 2 - plane : plane;
  int value = 0;
  switch (job.resampling) {
    case Resampling::linear:
      value = letterbox_kernel::linear(job, column, row, channel);
      break;
    case Resampling::mean_of_four:
      value = letterbox_kernel::mean_of_four(job, column, row, channel);
      break;
    default:
      value = letterbox_kernel::triangle(job, column, row, channel);
  }
  return (static_cast<float>(value) * job.scale - job.mean[plane]) / job.std[plane];
}

}  // namespace millrace
