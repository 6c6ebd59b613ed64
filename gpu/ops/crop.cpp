#include "gpu/ops/crop.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

namespace millrace {
namespace {

constexpr std::size_t maximum_rows = 65535;  // limit of a grid's third dimension

void on_host(const CropJob& job) {
  std::vector<std::uint8_t> packed;
  for (LetterboxJob row : job.request) {
    // letterbox_on_host reads rows without gaps, so a part of a wider raster is packed first.
    if (row.width != row.row_pixels) {
      packed.clear();
      for (int y = 0; y < row.height; ++y) {
        const std::uint8_t* const from = row.pixels + 3 * static_cast<std::ptrdiff_t>(y) * row.row_pixels;
        packed.insert(packed.end(), from, from + 3 * static_cast<std::ptrdiff_t>(row.width));
      }
      row.pixels = packed.data();
    }
    letterbox_on_host(row);
  }
}

void body(const CropJob& job) {
  for (int i = 0; i < job.count; ++i) letterbox_body(job.rows[i]);
}

double crops_of(const CropJob& job) { return job.count; }

constexpr Operation<CropJob> operation{.name = "crop", .host = on_host, .body = body, .units = crops_of};

/// Returns the part of the raster that shows this part of the picture.
DeviceImage part_of(const Crop& crop, const PixelRectangle& rectangle) {
  // Rounds outwards, so that the part shows every pixel of the rectangle.
  const int left = rectangle.left / crop.reduction, top = rectangle.top / crop.reduction;
  const auto end = [&](int first, int size, int limit) {
    return std::min((first + size + crop.reduction - 1) / crop.reduction, limit);
  };
  const std::uint8_t* const first =
      crop.raster.data.get() + 3 * (static_cast<std::ptrdiff_t>(top) * crop.raster.width + left);
  return {{crop.raster.data, first},
          end(rectangle.left, rectangle.width, crop.raster.width) - left,
          end(rectangle.top, rectangle.height, crop.raster.height) - top};
}

/// The geometry comes from the rectangle at full size, so a reduced raster changes no position.
LetterboxJob job_of(const Crop& crop, const InputSpec& spec, const Tensor& input) {
  const PixelRectangle rectangle = crop_rectangle(crop);
  LetterboxJob job =
      letterbox_job(part_of(crop, rectangle), letterbox_geometry(rectangle.width, rectangle.height, spec), spec);
  job.row_pixels = crop.raster.width;
  job.type = input.dtype;
  job.out = input.data;
  return job;
}

}  // namespace

PixelRectangle crop_rectangle(const Crop& crop) {
  // Before the conversion, because a large or infinite value does not fit an int. NaN becomes the lowest.
  const auto limited = [](float value, int lowest, int highest) {
    return value > static_cast<float>(lowest) ? static_cast<int>(std::min(static_cast<double>(value), 1.0 * highest))
                                              : lowest;
  };
  const int left = limited(std::floor(crop.box.x0), 0, crop.picture_width - 1),
            top = limited(std::floor(crop.box.y0), 0, crop.picture_height - 1);
  return {left, top, limited(std::ceil(crop.box.x1), left + 1, crop.picture_width) - left,
          limited(std::ceil(crop.box.y1), top + 1, crop.picture_height) - top};
}

void crop(Device& device, std::span<const Crop> crops, const InputSpec& spec, const Tensor& inputs) {
  check_input_type(inputs.dtype);
  if (inputs.shape.size() != 4 || inputs.shape[0] != static_cast<std::int64_t>(crops.size()) ||
      crops.size() > maximum_rows) {
    throw std::invalid_argument("crop: an input of " + std::to_string(inputs.shape.empty() ? 0 : inputs.shape[0]) +
                                " rows for " + std::to_string(crops.size()) +
                                " crops; these must be equal, and at most " + std::to_string(maximum_rows));
  }
  // CUDA refuses a launch without blocks.
  if (crops.empty()) return;
  CropJob job;
  job.count = static_cast<int>(crops.size());
  job.width = spec.width;
  job.height = spec.height;
  job.type = inputs.dtype;
  std::vector<LetterboxJob> rows;
  std::size_t words = 0;
  for (std::size_t i = 0; i < crops.size(); ++i) {
    rows.push_back(job_of(crops[i], spec, inputs.row(static_cast<std::int64_t>(i))));
    job.longest_axis = std::max({job.longest_axis, rows.back().x.size, rows.back().y.size});
    words += tap_words(rows.back().x) + tap_words(rows.back().y);
  }
  // This vector ends with the function. Only the CPU reads the span, before device.run() returns.
  job.request = rows;
  std::shared_ptr<std::int32_t[]> taps;  // later calls can reuse the memory
  if (!device.on_host()) {
    taps = device.allocate<std::int32_t>(words);
    std::int32_t* next = taps.get();
    for (LetterboxJob& row : rows) next = place_taps(row.y, place_taps(row.x, next));
    // Stored, because the arguments of a kernel have at most 4 kB.
    job.rows = device.store(std::span<const LetterboxJob>(rows));
  }
  device.run(operation, job);
}

}  // namespace millrace
