#pragma once

#include <array>
#include <cstdint>

#include "base/box.hpp"
#include "base/image.hpp"

namespace millrace {

/// How pixels are resampled. A wrong filter costs more mask quality than low precision.
enum class ResizeFilter {
  cv2_linear,              ///< cv2.resize(INTER_LINEAR): YOLOX, Ultralytics
  pil_bilinear_antialias,  ///< Pillow's Image.resize(BILINEAR): torchvision on PIL pictures, SAM, MobileSAM
};

/// How the picture is brought to the model's input size.
enum class ResizeMode {
  letterbox,     ///< one ratio r = min(W/w, H/h), rounding and placement as below: YOLOX, Ultralytics
  longest_side,  ///< the same ratio, sides rounded half up, top left: SAM, MobileSAM
  stretch,       ///< both sides to the input size, no padding
  /// The shorter side to `shorter_side`, the longer one by the same ratio, rounded down. The input shows the centre,
  /// with padding if it is too small. Only with pil_bilinear_antialias: torchvision's presets of classifiers.
  centre_crop,
};

/// How `letterbox` rounds the resized sides, and how boxes are then mapped. The other modes map as half_even.
enum class SideRounding {
  down,       ///< int(w * r); boxes scale with r: YOLOX
  half_even,  ///< Python's round(w * r); each axis of a box scales with its rounded side: Ultralytics
};

/// Where `letterbox` puts the picture.
enum class Placement {
  top_left,  ///< padding right and bottom: YOLOX
  centred,   ///< half of the padding left and above; an odd pixel goes right or below: Ultralytics
};

/// The input of a model: float [3, height, width], each value (v * scale - mean) / std with v in 0..255.
/// For exactly v / 255, set std = 255 and not scale = 1/255, which rounds differently.
struct InputSpec {
  int width = 0, height = 0;
  int depth = 0;               ///< of windows of volumes; 0: pictures
  bool columns_first = false;  ///< windows of volumes are [x, y, z] and not [z, y, x]
  ResizeMode mode = ResizeMode::letterbox;
  int shorter_side = 0;  ///< centre_crop only
  SideRounding rounding = SideRounding::down;
  Placement placement = Placement::top_left;
  ResizeFilter filter = ResizeFilter::cv2_linear;
  bool bgr = false;           ///< plane 0 is blue; mean, std and pad are given in plane order
  bool keeps_values = false;  ///< windows of pictures have the channels and values of the file; false: RGB of 8 bits
  float scale = 1;
  std::array<float, 3> mean{0, 0, 0};
  std::array<float, 3> std{1, 1, 1};
  std::array<float, 3> pad{114, 114, 114};  ///< colour before normalisation, 0..255; SAM uses the mean, which becomes 0
};

/// The position of a picture in a model's input.
struct LetterboxGeometry {
  int picture_width = 0, picture_height = 0;
  int resized_width = 0, resized_height = 0;  ///< at least 1; only centre_crop can exceed the input
  int left = 0, top = 0;                      ///< padding before the picture, in input pixels; negative: pixels cut off
  double scale_x = 1, scale_y = 1;            ///< input pixels per picture pixel, as the model's authors map boxes

  /// Converts picture pixels to input pixels.
  Box to_input(const Box& box) const;
  /// Converts input pixels to picture pixels and clips to the picture. A box outside it gets area 0.
  Box to_picture(const Box& box) const;
};

/// The part of one axis of a resized picture that an input shows, in pixels of that picture.
struct ShownPixels {
  int begin = 0, size = 0;
};
inline ShownPixels shown_pixels(int before, int resized, int input) {
  const int begin = before < 0 ? -before : 0;
  return {begin, resized - begin < input ? resized - begin : input};
}

/// Returns the position of a picture of this full size, even if a reduced raster of it is resized.
/// Sides that would round to 0 become 1. Throws std::invalid_argument for sizes below 1, and for a spec of centre_crop
/// that has another filter or no shorter side.
LetterboxGeometry letterbox_geometry(int picture_width, int picture_height, const InputSpec& spec);

/// Resizes, pads and normalises one picture. `pixels` is the picture or a reduced raster of it.
/// `out` has 3 * spec.height * spec.width floats in planes, RGB or BGR as in the spec.
void letterbox_cpu(const Image8& pixels, const LetterboxGeometry& geometry, const InputSpec& spec, float* out);

}  // namespace millrace
