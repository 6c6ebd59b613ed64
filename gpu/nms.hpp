#pragma once

#include <span>
#include <vector>

#include "base/box.hpp"

namespace millrace {

/// Greedy non-maximum suppression as torchvision.ops.nms does it (class_aware: torchvision.ops.batched_nms, per class).
/// Boxes are visited by falling score, ties by rising index, so the result depends on nothing but the arguments. One is
/// dropped when its IoU with a kept one (of its class) is > iou_threshold; IoU is computed in float32, without the
/// "+1" of integer boxes; boxes without area suppress nothing and are not suppressed.
///
/// Returns indices of the kept boxes, best first, at most max_kept (ask for one more to learn whether there were more).
/// `classes` may be empty when class_aware is false. Throws std::invalid_argument on spans of different length,
/// NonFinite on a score that is NaN. Time O(n log n + n * kept).
std::vector<int> nms_cpu(std::span<const Box> boxes, std::span<const float> scores, std::span<const int> classes,
                         double iou_threshold, int max_kept, bool class_aware);

}  // namespace millrace
