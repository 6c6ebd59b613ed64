#include "gpu/prompts.hpp"

#include <cstdint>
#include <vector>

namespace millrace {

Prompts make_prompts(Device& device, std::span<const Box> boxes, std::span<const int> image_index) {
  // The rows of the tensor are boxes as they are in memory: x0, y0, x1, y1.
  static_assert(sizeof(Box) == 4 * sizeof(float));
  const auto count = static_cast<std::int64_t>(boxes.size());
  Prompts prompts{device.empty({count, 4}), device.empty({count}, DType::i64)};
  // Decoders take image_index as int64.
  const std::vector<std::int64_t> index(image_index.begin(), image_index.end());
  device.store(boxes, prompts.boxes);
  device.store(std::span<const std::int64_t>(index), prompts.image_index);
  return prompts;
}

}  // namespace millrace
