#pragma once

#include <array>
#include <vector>

#include "base/box.hpp"
#include "base/tensor.hpp"

namespace millrace {

/// How a detector lays out its output, for a model with C classes and A anchors.
enum class HeadLayout {
  yolox_raw,  ///< [B, A, 5 + C], float32: x, y relative to the cell and w, h as logarithms, both in strides; then
              ///< objectness and class scores after their sigmoid. Anchors: strides 8, 16, 32, each row by row. Score
              ///< of a class = objectness * class score. This is what YOLOX exports without --decode_in_inference.
  v8,  ///< [B, 4 + C, A], float32: centre x, y, w, h in input pixels; class scores after their sigmoid. Ultralytics
       ///< v8 and v11.
};

/// What the model's package says about its head.
struct HeadSpec {
  HeadLayout layout = HeadLayout::v8;
  int input_width = 640, input_height = 640;
  int classes = 80;
  std::array<int, 3> strides{8, 16, 32};  ///< yolox_raw only
};

/// Boxes before non-maximum suppression, in order of their anchors.
struct Candidates {
  std::vector<Box> boxes;  ///< input pixels, not clipped
  std::vector<float> scores;
  std::vector<int> classes;
};

/// Anchors that this head must have: the cells of all strides for yolox_raw, -1 (any number) for v8.
int expected_anchors(const HeadSpec& spec);

/// Throws std::invalid_argument when type or shape are not those of the layout.
void check_head_output(const Tensor& output, const HeadSpec& spec);

/// The boxes of one picture of a batch: of each anchor its best class (the lowest index where several are equal), where
/// that score is >= score_threshold. `output` lies on the host. Throws as check_head_output(), and NonFinite when the
/// picture's part of the output holds NaN or infinity, or a box becomes infinite.
Candidates decode_head(const Tensor& output, int batch_index, const HeadSpec& spec, float score_threshold);

}  // namespace millrace
