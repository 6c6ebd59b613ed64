#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

/// One found object, as sinks and readers of segments see it.
/// The box is in picture pixels after EXIF orientation, in COCO order.
struct Object {
  float x = 0, y = 0, width = 0, height = 0;
  float score = 0;
  int class_id = 0;
  std::string name;                       ///< class name; empty when the package has none
  std::vector<std::uint32_t> rle_counts;  ///< column-major runs, zeros first, sum = picture area; empty: no mask
  float predicted_iou = 0;
  std::int64_t area = 0;  ///< pixels of the mask
};

}  // namespace millrace
