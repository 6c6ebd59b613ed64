#pragma once

#include <span>

#include "base/box.hpp"
#include "gpu/ops/letterbox.hpp"

namespace millrace {

/// A rectangle of pixels.
struct PixelRectangle {
  int left = 0, top = 0, width = 0, height = 0;
  friend bool operator==(const PixelRectangle&, const PixelRectangle&) = default;
};

/// A part of an uploaded picture. The raster may be reduced (PictureInfo::reduction).
struct Crop {
  DeviceImage raster;
  int picture_width = 0, picture_height = 0, reduction = 1;
  Box box;  ///< in picture pixels
};

/// Returns the pixels that the box touches, at least one.
PixelRectangle crop_rectangle(const Crop& crop);

/// Fills row i of `inputs` [N, 3, H, W] from crop i, as letterbox() does from whole pictures.
/// The position is letterbox_geometry() of the rectangle's size.
/// Throws std::invalid_argument for another number of rows, and as letterbox() does.
void crop(Device& device, std::span<const Crop> crops, const InputSpec& spec, const Tensor& inputs);

}  // namespace millrace
