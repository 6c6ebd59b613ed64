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

/// Operation `crop`: fills row i of `inputs` [N, 3, H, W] from crop i, as letterbox does from a whole picture.
/// The position is letterbox_geometry() of the rectangle's size. One launch fills the rows of all pictures.
/// Types are those of letterbox.
/// Throws std::invalid_argument for another type, for another number of rows, and for more than 65,535 rows.
void crop(Device& device, std::span<const Crop> crops, const InputSpec& spec, const Tensor& inputs);

struct CropJob {
  std::span<const LetterboxJob> request;  ///< the rows, for the CPU
  const LetterboxJob* rows = nullptr;     ///< the same, in device memory
  int count = 0;
  int longest_axis = 0;  ///< largest number of values of one axis, over all rows
  int width = 0, height = 0;
  DType type = DType::f32;
};

/// Queues the kernels (crop.cu).
void launch(const CropJob& job, Stream& stream);

}  // namespace millrace
