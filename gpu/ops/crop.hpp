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

/// A part of an uploaded picture. The raster may be a reduced one: PictureInfo::reduction.
struct Crop {
  DeviceImage raster;
  int picture_width = 0, picture_height = 0, reduction = 1;
  Box box;  ///< in picture pixels
};

/// What is taken of the picture: all pixels that the box touches, and at least one.
PixelRectangle crop_rectangle(const Crop& crop);

/// Operation `crop`: row i of `inputs` [N, 3, H, W] is crop i, as letterbox would make it were the rectangle the whole
/// picture; letterbox_geometry() of the rectangle's size says where it lies. One launch fills all rows, of as many
/// pictures as there are. Types as for letterbox. Throws std::invalid_argument on another type or number of rows, and
/// on more than 65,535.
void crop(Device& device, std::span<const Crop> crops, const InputSpec& spec, const Tensor& inputs);

struct CropJob {
  std::span<const LetterboxJob> request;  ///< the rows, where the CPU reads them
  const LetterboxJob* rows = nullptr;     ///< the same in memory of the device
  int count = 0;
  int longest_axis = 0;  ///< values of it
  int width = 0, height = 0;
  DType type = DType::f32;
};

/// crop.cu
void launch(const CropJob& job, Stream& stream);

}  // namespace millrace
