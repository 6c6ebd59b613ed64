#pragma once

#include <vector>

#include "gpu/letterbox.hpp"

namespace millrace {

/// Input specs of every kind: modes, filters, roundings, placements, colour orders.
inline std::vector<InputSpec> input_specs() {
  InputSpec yolox;
  yolox.width = yolox.height = 64;
  yolox.bgr = true;
  InputSpec ultralytics;
  ultralytics.width = 96;
  ultralytics.height = 64;
  ultralytics.rounding = SideRounding::half_even;
  ultralytics.placement = Placement::centred;
  ultralytics.std = {255, 255, 255};
  InputSpec sam;
  sam.width = sam.height = 64;
  sam.mode = ResizeMode::longest_side;
  sam.filter = ResizeFilter::pil_bilinear_antialias;
  sam.mean = sam.pad = {123.675F, 116.28F, 103.53F};
  sam.std = {58.395F, 57.12F, 57.375F};
  InputSpec stretch = sam;
  stretch.mode = ResizeMode::stretch;
  stretch.scale = 0.5F;
  InputSpec stretch_linear = yolox;
  stretch_linear.mode = ResizeMode::stretch;
  InputSpec centre = sam;
  centre.width = 60, centre.height = 56;
  centre.mode = ResizeMode::centre_crop;
  centre.shorter_side = 63;
  InputSpec small_centre = centre;  // usually wider than the resized picture
  small_centre.width = 91;
  small_centre.shorter_side = 40;
  return {yolox, ultralytics, sam, stretch, stretch_linear, centre, small_centre};
}

}  // namespace millrace
