#include "gpu/yolo_head.hpp"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gpu/clones.hpp"
#include "gpu/finite.hpp"

namespace millrace {

namespace {

std::string shape_text(const Tensor& tensor) {
  std::string text = "[";
  for (const std::int64_t side : tensor.shape) text += (text.size() > 1 ? ", " : "") + std::to_string(side);
  return text + "]";
}

void add(Candidates& candidates, const Box& box, float score, int class_id) {
  // The sum of finite numbers can be infinite. It is finite only if all corners are.
  if (!std::isfinite(box.x0 + box.y0 + box.x1 + box.y1)) throw NonFinite(box_not_finite);
  candidates.boxes.push_back(box);
  candidates.scores.push_back(score);
  candidates.classes.push_back(class_id);
}

/// Keeps the best score so far of each box. A later class must be strictly better.
MILLRACE_CLONES void take_better(const float* scores, int class_id, std::size_t boxes, float* best, int* best_class) {
  for (std::size_t i = 0; i < boxes; ++i) {
    const bool better = scores[i] > best[i];
    best[i] = better ? scores[i] : best[i];
    best_class[i] = better ? class_id : best_class[i];
  }
}

Candidates decode_v8(const float* picture, const HeadSpec& spec, float score_threshold) {
  const auto boxes = static_cast<std::size_t>(spec.boxes);
  const float *x = picture, *y = x + boxes, *width = y + boxes, *height = width + boxes, *scores = height + boxes;
  // Class by class, because the scores of one class are adjacent for all boxes.
  std::vector<float> best(scores, scores + boxes);
  std::vector<int> best_class(boxes, 0);
  for (int class_id = 1; class_id < spec.classes; ++class_id) {
    take_better(scores + static_cast<std::size_t>(class_id) * boxes, class_id, boxes, best.data(), best_class.data());
  }
  Candidates candidates;
  for (std::size_t i = 0; i < boxes; ++i) {
    if (best[i] < score_threshold) continue;
    const float half_width = width[i] / 2, half_height = height[i] / 2;
    add(candidates, {x[i] - half_width, y[i] - half_height, x[i] + half_width, y[i] + half_height}, best[i],
        best_class[i]);
  }
  return candidates;
}

Candidates decode_end_to_end(const float* row, const HeadSpec& spec, float score_threshold) {
  Candidates candidates;
  bool known = true;
  for (int i = 0; i < spec.boxes; ++i, row += 6) {
    if (row[4] < score_threshold) continue;  // models fill unused rows with low scores and any class
    known = known && row[5] >= 0 && row[5] < static_cast<float>(spec.classes) && row[5] == std::floor(row[5]);
    add(candidates, {row[0], row[1], row[2], row[3]}, row[4], known ? static_cast<int>(row[5]) : 0);
  }
  // After the loop, because an infinite box is reported first, also by the kernels.
  if (!known) throw UnknownClass();
  return candidates;
}

}  // namespace

void check_head_output(const Tensor& output, const HeadSpec& spec) {
  const auto [rows, columns] =
      spec.layout == HeadLayout::v8 ? std::pair{4 + spec.classes, spec.boxes} : std::pair{spec.boxes, 6};
  if (output.dtype != DType::f32 || output.shape.size() != 3 || spec.classes < 1 || output.shape[1] != rows ||
      output.shape[2] != columns) {
    throw std::invalid_argument("detector output has shape " + shape_text(output) + ", expected float32 [batch, " +
                                std::to_string(rows) + ", " + std::to_string(columns) +
                                "]; check output and classes in model.yaml");
  }
}

Candidates decode_head(const Tensor& output, int batch_index, const HeadSpec& spec, float score_threshold) {
  check_head_output(output, spec);
  if (output.device >= 0)
    throw std::invalid_argument("the detector output is on a device; decode_head needs it on the host");
  if (batch_index < 0 || batch_index >= output.shape[0]) {
    throw std::invalid_argument("the detector output of shape " + shape_text(output) + " has no picture " +
                                std::to_string(batch_index));
  }
  const auto size = static_cast<std::size_t>(output.shape[1] * output.shape[2]);
  const auto picture = output.host<float>().subspan(static_cast<std::size_t>(batch_index) * size, size);
  // All boxes count, also those below the threshold, as in the kernels.
  if (!all_finite(picture)) throw NonFinite(output_not_finite);
  return spec.layout == HeadLayout::v8 ? decode_v8(picture.data(), spec, score_threshold)
                                       : decode_end_to_end(picture.data(), spec, score_threshold);
}

}  // namespace millrace
