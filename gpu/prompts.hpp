#pragma once

#include <span>

#include "base/box.hpp"
#include "gpu/device.hpp"

namespace millrace {

/// The box prompts of a decoder call, on the device.
struct Prompts {
  Tensor boxes;        ///< f32 [N, 4]
  Tensor image_index;  ///< i64 [N]
};

/// Copies `boxes` to the device. They are in pixels of the segmenter's input; box n is of picture image_index[n].
Prompts make_prompts(Device& device, std::span<const Box> boxes, std::span<const int> image_index);

}  // namespace millrace
