#pragma once

#include <span>
#include <vector>

#include "base/box.hpp"

namespace millrace {

/// Greedy non-maximum suppression as torchvision.ops.nms does it (class_aware: torchvision.ops.batched_nms, per class).
/// It visits boxes by falling score, equal scores by rising index, so the result depends only on the arguments.
/// It drops a box whose IoU with a kept box (of its class) is > iou_threshold.
/// IoU is computed in float32, without the "+1" of integer boxes. Boxes without area never overlap.
///
/// Returns indices of the kept boxes, best first, at most max_kept. Pass one more to learn whether there were more.
/// `classes` may be empty if class_aware is false. Throws std::invalid_argument for spans of different lengths, and
/// NonFinite for a score that is NaN. Time: O(n log n + n * kept).
std::vector<int> nms_cpu(std::span<const Box> boxes, std::span<const float> scores, std::span<const int> classes,
                         double iou_threshold, int max_kept, bool class_aware);

}  // namespace millrace
