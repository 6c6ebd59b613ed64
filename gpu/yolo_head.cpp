#include "gpu/yolo_head.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "gpu/clones.hpp"
#include "gpu/finite.hpp"

namespace millrace {

namespace {

std::string shape_text(const Tensor& tensor) {
  std::string text = "[";
  for (const std::int64_t side : tensor.shape) text += (text.size() > 1 ? ", " : "") + std::to_string(side);
  return text + "]";
}

[[noreturn]] void wrong_shape(const Tensor& output, const std::string& expected) {
  throw std::invalid_argument("detector output has shape " + shape_text(output) + ", expected float32 " + expected +
                              "; check head, classes and input size in model.yaml");
}

void add(Candidates& candidates, float x, float y, float width, float height, float score, int class_id) {
  const float half_width = width / 2, half_height = height / 2;
  const Box box{x - half_width, y - half_height, x + half_width, y + half_height};
  // The exponential of a large output is infinite. The sum is finite only if all corners are.
  if (!std::isfinite(box.x0 + box.y0 + box.x1 + box.y1)) throw NonFinite(box_not_finite);
  candidates.boxes.push_back(box);
  candidates.scores.push_back(score);
  candidates.classes.push_back(class_id);
}

Candidates decode_yolox(const float* anchor, const HeadSpec& spec, float score_threshold) {
  Candidates candidates;
  for (const int stride : spec.strides) {
    const auto pixels = static_cast<float>(stride);
    for (int row = 0; row < spec.input_height / stride; ++row) {
      for (int column = 0; column < spec.input_width / stride; ++column, anchor += 5 + spec.classes) {
        const float objectness = anchor[4];
        if (objectness < score_threshold) continue;  // class scores are at most 1
        // The first of equal scores: the lowest class.
        const float* const best = std::max_element(anchor + 5, anchor + 5 + spec.classes);
        const float score = objectness * *best;
        if (score < score_threshold) continue;
        add(candidates, (anchor[0] + static_cast<float>(column)) * pixels,
            (anchor[1] + static_cast<float>(row)) * pixels, std::exp(anchor[2]) * pixels, std::exp(anchor[3]) * pixels,
            score, static_cast<int>(best - (anchor + 5)));
      }
    }
  }
  return candidates;
}

/// Keeps the best score so far of each anchor. A later class must be strictly better.
MILLRACE_CLONES void take_better(const float* scores, int class_id, std::size_t anchors, float* best, int* best_class) {
  for (std::size_t i = 0; i < anchors; ++i) {
    const bool better = scores[i] > best[i];
    best[i] = better ? scores[i] : best[i];
    best_class[i] = better ? class_id : best_class[i];
  }
}

Candidates decode_v8(const float* picture, std::size_t anchors, const HeadSpec& spec, float score_threshold) {
  const float *x = picture, *y = x + anchors, *width = y + anchors, *height = width + anchors,
              *scores = height + anchors;
  // Class by class, because the scores of one class are adjacent for all anchors.
  std::vector<float> best(scores, scores + anchors);
  std::vector<int> best_class(anchors, 0);
  for (int class_id = 1; class_id < spec.classes; ++class_id) {
    take_better(scores + static_cast<std::size_t>(class_id) * anchors, class_id, anchors, best.data(),
                best_class.data());
  }
  Candidates candidates;
  for (std::size_t i = 0; i < anchors; ++i) {
    if (best[i] >= score_threshold) add(candidates, x[i], y[i], width[i], height[i], best[i], best_class[i]);
  }
  return candidates;
}

}  // namespace

int expected_anchors(const HeadSpec& spec) {
  if (spec.layout == HeadLayout::v8) return -1;
  int anchors = 0;
  for (const int stride : spec.strides) anchors += (spec.input_width / stride) * (spec.input_height / stride);
  return anchors;
}

void check_head_output(const Tensor& output, const HeadSpec& spec) {
  const std::string channels = std::to_string((spec.layout == HeadLayout::v8 ? 4 : 5) + spec.classes);
  const int anchors = expected_anchors(spec);
  const std::string expected = spec.layout == HeadLayout::v8
                                   ? "[batch, " + channels + ", anchors]"
                                   : "[batch, " + std::to_string(anchors) + ", " + channels + "]";
  if (output.dtype != DType::f32 || output.shape.size() != 3 || spec.classes < 1) wrong_shape(output, expected);
  const std::int64_t channel_side = output.shape[spec.layout == HeadLayout::v8 ? 1 : 2];
  if (std::to_string(channel_side) != channels) wrong_shape(output, expected);
  if (anchors >= 0 && output.shape[1] != anchors) wrong_shape(output, expected);
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
  // All anchors count, also those below the threshold, as in the kernels.
  if (!all_finite(picture)) throw NonFinite(output_not_finite);
  if (spec.layout == HeadLayout::yolox_raw) return decode_yolox(picture.data(), spec, score_threshold);
  return decode_v8(picture.data(), static_cast<std::size_t>(output.shape[2]), spec, score_threshold);
}

}  // namespace millrace
