#include "gpu/ops/letterbox.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "base/half.hpp"

namespace millrace {
namespace {

constexpr Operation<LetterboxJob> operation{.name = "letterbox", .host = letterbox_on_host, .body = letterbox_body};

/// Returns the taps for the part of an axis that the input shows, without memory.
ResampleTaps taps_of(int from, int to, int before, int input, bool triangle) {
  ResampleTaps taps;
  taps.from = from;
  taps.to = to;
  const ShownPixels shown = shown_pixels(before, to, input);
  taps.begin = shown.begin;
  taps.size = shown.size;
  taps.taps = triangle ? maximum_triangle_taps(from, to) : 2;
  return taps;
}

template <class Value, class Convert>
void fill(const LetterboxJob& job, Value* values, const Convert& convert) {
  for (int plane = 0; plane < 3; ++plane) {
    for (int y = 0; y < job.spec.height; ++y) {
      for (int x = 0; x < job.spec.width; ++x) *values++ = convert(letterbox_value(job, x, y, plane));
    }
  }
}

}  // namespace

LetterboxJob letterbox_job(const DeviceImage& raster, const LetterboxGeometry& geometry, const InputSpec& spec) {
  LetterboxJob job;
  job.pixels = raster.data.get();
  job.width = job.row_pixels = raster.width;
  job.height = raster.height;
  job.geometry = geometry;
  job.spec = spec;
  const int to_width = geometry.resized_width, to_height = geometry.resized_height;
  const bool triangle = spec.filter == ResizeFilter::pil_bilinear_antialias;
  if (triangle) {
    // Pillow 13 has this order; see resample_triangle().
    const bool y_first =
        to_height < job.height && job.height - to_height > 2 * (job.width - to_width) && to_width != job.width;
    job.resampling = y_first ? Resampling::triangle_y_then_x : Resampling::triangle_x_then_y;
  } else {
    const bool halved = job.width == 2 * to_width && job.height == 2 * to_height;
    job.resampling = halved ? Resampling::mean_of_four : Resampling::linear;
  }
  job.x = taps_of(job.width, to_width, geometry.left, spec.width, triangle);
  job.y = taps_of(job.height, to_height, geometry.top, spec.height, triangle);
  return job;
}

std::size_t tap_words(const ResampleTaps& taps) {
  // Each value has `first`, `count` and its weights.
  return static_cast<std::size_t>(taps.size) * (2 + static_cast<std::size_t>(taps.taps));
}

std::int32_t* place_taps(ResampleTaps& taps, std::int32_t* memory) {
  taps.first = memory;
  taps.count = taps.first + taps.size;
  taps.weights = taps.count + taps.size;
  return memory + tap_words(taps);
}

void check_input_type(DType type) {
  if (type != DType::f32 && type != DType::f16 && type != DType::bf16)
    throw std::invalid_argument("letterbox: the type of an input must be f32, f16 or bf16");
}

void letterbox_on_host(const LetterboxJob& job) {
  const Image8 pixels{job.pixels, job.width, job.height};
  if (job.type == DType::f32) return letterbox_cpu(pixels, job.geometry, job.spec, static_cast<float*>(job.out));
  std::vector<float> wide(3 * static_cast<std::size_t>(job.spec.width) * static_cast<std::size_t>(job.spec.height));
  letterbox_cpu(pixels, job.geometry, job.spec, wide.data());
  std::transform(wide.begin(), wide.end(), static_cast<std::uint16_t*>(job.out),
                 job.type == DType::f16 ? to_f16 : to_bf16);
}

void letterbox_body(const LetterboxJob& job) {
  for (int i = 0; i < job.x.size; ++i) letterbox_kernel::fill_taps(job, false, i);
  for (int i = 0; i < job.y.size; ++i) letterbox_kernel::fill_taps(job, true, i);
  if (job.type == DType::f32) return fill(job, static_cast<float*>(job.out), [](float value) { return value; });
  fill(job, static_cast<std::uint16_t*>(job.out), job.type == DType::f16 ? to_f16 : to_bf16);
}

void letterbox(Device& device, const DeviceImage& raster, const LetterboxGeometry& geometry, const InputSpec& spec,
               const Tensor& input) {
  LetterboxJob job = letterbox_job(raster, geometry, spec);
  job.type = input.dtype;
  job.out = input.data;
  check_input_type(job.type);
  std::shared_ptr<std::int32_t[]> taps;  // later calls can reuse the memory
  // letterbox_cpu() makes its own tables.
  if (!device.on_host()) {
    taps = device.allocate<std::int32_t>(tap_words(job.x) + tap_words(job.y));
    place_taps(job.y, place_taps(job.x, taps.get()));
  }
  device.run(operation, job);
}

}  // namespace millrace
