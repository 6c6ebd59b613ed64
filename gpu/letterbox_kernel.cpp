#include "gpu/letterbox_kernel.hpp"

#include <algorithm>

namespace millrace {

LetterboxTables letterbox_tables(int width, int height, const LetterboxGeometry& geometry, const InputSpec& spec) {
  const int to_width = geometry.resized_width, to_height = geometry.resized_height;
  LetterboxTables tables;
  if (spec.filter == ResizeFilter::pil_bilinear_antialias) {
    // The order of Pillow 13; see resample_triangle.
    const bool y_first = to_height < height && height - to_height > 2 * (width - to_width) && to_width != width;
    tables.resampling = y_first ? Resampling::triangle_y_then_x : Resampling::triangle_x_then_y;
    tables.x = triangle_table(width, to_width);
    tables.y = triangle_table(height, to_height);
    return tables;
  }
  const bool halved = width == 2 * to_width && height == 2 * to_height;
  tables.resampling = halved ? Resampling::mean_of_four : Resampling::linear;
  tables.x = linear_table(width, to_width, false);
  tables.y = linear_table(height, to_height, true);
  return tables;
}

LetterboxJob letterbox_job(int width, int height, const LetterboxGeometry& geometry, const InputSpec& spec) {
  LetterboxJob job;
  job.width = width;
  job.height = height;
  job.resized_width = geometry.resized_width;
  job.resized_height = geometry.resized_height;
  job.left = geometry.left;
  job.top = geometry.top;
  job.input_width = spec.width;
  job.input_height = spec.height;
  job.bgr = spec.bgr;
  job.scale = spec.scale;
  for (std::size_t i = 0; i < 3; ++i) {
    job.mean[i] = spec.mean[i];
    job.std[i] = spec.std[i];
    job.fill[i] = (spec.pad[i] * spec.scale - spec.mean[i]) / spec.std[i];
  }
  return job;
}

}  // namespace millrace
