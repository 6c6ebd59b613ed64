#include "gpu/crop.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace millrace {
namespace {

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
LetterboxRow row_of(const Crop& crop, const InputSpec& spec, const Tensor& input) {
  const PixelRectangle rectangle = crop_rectangle(crop);
  LetterboxRow row =
      letterbox_row(part_of(crop, rectangle), letterbox_geometry(rectangle.width, rectangle.height, spec), spec, input);
  row.row_pixels = crop.raster.width;
  return row;
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
  if (inputs.shape.size() != 4 || inputs.shape[0] != static_cast<std::int64_t>(crops.size())) {
    throw std::invalid_argument("crop: an input of " + std::to_string(inputs.shape.empty() ? 0 : inputs.shape[0]) +
                                " rows for " + std::to_string(crops.size()) + " crops; these must be equal");
  }
  std::vector<LetterboxRow> rows;
  for (std::size_t i = 0; i < crops.size(); ++i)
    rows.push_back(row_of(crops[i], spec, inputs.row(static_cast<std::int64_t>(i))));
  letterbox(device, std::move(rows));
}

}  // namespace millrace
