#include "gpu/nms.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "gpu/clones.hpp"
#include "gpu/finite.hpp"

namespace millrace {

namespace {

/// The kept boxes, one array for each coordinate, so that the compiler vectorises the comparison.
struct Kept {
  std::vector<float> x0, y0, x1, y1, area;
  std::vector<int> class_id;

  void add(const Box& box, float box_area, int box_class) {
    x0.push_back(box.x0);
    y0.push_back(box.y0);
    x1.push_back(box.x1);
    y1.push_back(box.y1);
    area.push_back(box_area);
    class_id.push_back(box_class);
  }
};

/// Whether a kept box of this class overlaps by more than the threshold. The IoU of two boxes without area is NaN.
/// In torchvision a comparison with NaN is false, so such boxes suppress nothing; the same is true here.
MILLRACE_CLONES bool suppressed(const Kept& kept, const Box& box, float area, int class_id, double iou_threshold) {
  constexpr std::size_t block = 64;  // long enough to vectorise, short enough to stop early
  const std::size_t count = kept.area.size();
  const float *x0 = kept.x0.data(), *y0 = kept.y0.data(), *x1 = kept.x1.data(), *y1 = kept.y1.data();
  const float* areas = kept.area.data();
  const int* classes = kept.class_id.data();
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t end = std::min(begin + block, count);
    int found = 0;
    // No branches, so that this loop vectorises. The IoU is a float and the threshold a double, as in torchvision.
    for (std::size_t i = begin; i < end; ++i) {
      const float width = std::min(box.x1, x1[i]) - std::max(box.x0, x0[i]);
      const float height = std::min(box.y1, y1[i]) - std::max(box.y0, y0[i]);
      const float intersection = std::max(0.0F, width) * std::max(0.0F, height);
      const float iou = intersection / (areas[i] + area - intersection);
      found |= static_cast<int>(static_cast<double>(iou) > iou_threshold) & static_cast<int>(classes[i] == class_id);
    }
    if (found != 0) return true;
  }
  return false;
}

}  // namespace

std::vector<int> nms_cpu(std::span<const Box> boxes, std::span<const float> scores, std::span<const int> classes,
                         double iou_threshold, int max_kept, bool class_aware) {
  if (scores.size() != boxes.size() || (class_aware && classes.size() != boxes.size())) {
    throw std::invalid_argument("nms: " + std::to_string(boxes.size()) + " boxes, " + std::to_string(scores.size()) +
                                " scores and " + std::to_string(classes.size()) + " classes; these must be equal");
  }
  // Checked first, because std::sort needs a strict order, which NaN would break.
  if (std::any_of(scores.begin(), scores.end(), [](float score) { return std::isnan(score); })) {
    throw NonFinite("nms: a score is NaN");
  }
  std::vector<int> order(boxes.size());
  std::iota(order.begin(), order.end(), 0);
  // The index decides between equal scores. So the order is total, and an unstable sort gives one result.
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    const float score_a = scores[static_cast<std::size_t>(a)], score_b = scores[static_cast<std::size_t>(b)];
    return score_a != score_b ? score_a > score_b : a < b;
  });
  std::vector<int> result;
  Kept kept;
  for (const int candidate : order) {
    if (static_cast<int>(result.size()) >= max_kept) break;
    const Box& box = boxes[static_cast<std::size_t>(candidate)];
    const int class_id = class_aware ? classes[static_cast<std::size_t>(candidate)] : 0;
    const float area = (box.x1 - box.x0) * (box.y1 - box.y0);
    if (suppressed(kept, box, area, class_id, iou_threshold)) continue;
    result.push_back(candidate);
    kept.add(box, area, class_id);
  }
  return result;
}

}  // namespace millrace
