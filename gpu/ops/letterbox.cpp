#include "gpu/ops/letterbox.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/half.hpp"

namespace millrace {
namespace {

constexpr std::size_t maximum_rows = 65535;  // limit of a grid's third dimension

void on_host(const LetterboxJob& job) {
  for (const LetterboxRow& row : job.request) letterbox_on_host(row);
}

void body(const LetterboxJob& job) {
  for (int i = 0; i < job.count; ++i) letterbox_body(job.rows[i]);
}

double rows_of(const LetterboxJob& job) { return job.count; }

constexpr Operation<LetterboxJob> operation{.name = "letterbox", .host = on_host, .body = body, .units = rows_of};

}  // namespace

LetterboxRow letterbox_row(const DeviceImage& raster, const LetterboxGeometry& geometry, const InputSpec& spec,
                           const Tensor& input) {
  LetterboxRow row;
  row.pixels = raster.data.get();
  row.width = row.row_pixels = raster.width;
  row.height = raster.height;
  row.geometry = geometry;
  row.spec = spec;
  row.type = input.dtype;
  row.out = input.data;
  const int to_width = geometry.resized_width, to_height = geometry.resized_height;
  const bool triangle = spec.filter == ResizeFilter::pil_bilinear_antialias;
  if (triangle) {
    // Pillow 13 has this order; see resample_triangle().
    const bool y_first =
        to_height < row.height && row.height - to_height > 2 * (row.width - to_width) && to_width != row.width;
    row.resampling = y_first ? Resampling::triangle_y_then_x : Resampling::triangle_x_then_y;
  } else {
    const bool halved = row.width == 2 * to_width && row.height == 2 * to_height;
    row.resampling = halved ? Resampling::mean_of_four : Resampling::linear;
  }
  return row;
}

void letterbox_on_host(const LetterboxRow& row) {
  const std::uint8_t* pixels = row.pixels;
  std::vector<std::uint8_t> packed;
  // letterbox_cpu() reads rows of pixels without gaps, so a part of a wider raster is packed first.
  if (row.width != row.row_pixels) {
    packed.reserve(std::size_t{3} * static_cast<std::size_t>(row.width) * static_cast<std::size_t>(row.height));
    for (int y = 0; y < row.height; ++y) {
      const std::uint8_t* const from = row.pixels + 3 * static_cast<std::ptrdiff_t>(y) * row.row_pixels;
      packed.insert(packed.end(), from, from + 3 * static_cast<std::ptrdiff_t>(row.width));
    }
    pixels = packed.data();
  }
  const Image8 raster{pixels, row.width, row.height};
  if (row.type == DType::f32) return letterbox_cpu(raster, row.geometry, row.spec, static_cast<float*>(row.out));
  std::vector<float> wide(3 * static_cast<std::size_t>(row.spec.width) * static_cast<std::size_t>(row.spec.height));
  letterbox_cpu(raster, row.geometry, row.spec, wide.data());
  std::transform(wide.begin(), wide.end(), static_cast<std::uint16_t*>(row.out),
                 row.type == DType::f16 ? to_f16 : to_bf16);
}

void letterbox_body(const LetterboxRow& row) { letterbox_kernel::fill_input(row); }

void letterbox(Device& device, std::vector<LetterboxRow> rows) {
  // CUDA refuses a launch without blocks.
  if (rows.empty()) return;
  const LetterboxRow& first = rows.front();
  if (first.type != DType::f32 && first.type != DType::f16 && first.type != DType::bf16)
    throw std::invalid_argument("letterbox: the type of an input must be f32, f16 or bf16");
  const bool alike = std::ranges::all_of(rows, [&](const LetterboxRow& row) {
    return row.type == first.type && row.spec.width == first.spec.width && row.spec.height == first.spec.height;
  });
  if (!alike || rows.size() > maximum_rows) {
    throw std::invalid_argument("letterbox: a call takes at most " + std::to_string(maximum_rows) +
                                " inputs, all of one type and size");
  }
  LetterboxJob job;
  job.count = static_cast<int>(rows.size());
  job.width = first.spec.width;
  job.height = first.spec.height;
  job.type = first.type;
  // This vector ends with the function. Only the CPU reads the span, before device.run() returns.
  job.request = rows;
  // Stored, because the arguments of a kernel have at most 4 kB.
  if (!device.on_host()) job.rows = device.store(job.request);
  device.run(operation, job);
}

}  // namespace millrace
