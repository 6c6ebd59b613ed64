#pragma once

#include <array>
#include <vector>

#include "base/box.hpp"
#include "base/tensor.hpp"

namespace millrace {

/// The layout of a detector's output, for C classes and A anchors.
enum class HeadLayout {
  /// [B, A, 5 + C], float32: x, y relative to the cell and w, h as logarithms, both in strides.
  /// Then objectness and class scores, after their sigmoid. Score of a class = objectness * class score.
  /// Anchors: strides 8, 16, 32, each row by row. YOLOX exports this without --decode_in_inference.
  yolox_raw,
  /// [B, 4 + C, A], float32: centre x, y, w, h in input pixels, then class scores, after their sigmoid.
  /// Ultralytics v8 and v11.
  v8,
};

/// The head of a detector, from its package.
struct HeadSpec {
  HeadLayout layout = HeadLayout::v8;
  int input_width = 640, input_height = 640;
  int classes = 80;
  std::array<int, 3> strides{8, 16, 32};  ///< yolox_raw only
};

/// Boxes before non-maximum suppression, in the order of their anchors.
struct Candidates {
  std::vector<Box> boxes;  ///< input pixels, not clipped
  std::vector<float> scores;
  std::vector<int> classes;
};

/// Returns the number of anchors: the cells of all strides for yolox_raw, -1 (any number) for v8.
int expected_anchors(const HeadSpec& spec);

/// Throws std::invalid_argument if type or shape differ from the layout.
void check_head_output(const Tensor& output, const HeadSpec& spec);

/// Returns the boxes of one picture of a batch, at most one for each anchor: its best class, if that score is
/// >= score_threshold. Of equal scores, the lowest class index wins. `output` is on the host.
/// Throws like check_head_output(). Throws NonFinite if the picture's part of the output contains NaN or infinity, or a
/// box becomes infinite.
Candidates decode_head(const Tensor& output, int batch_index, const HeadSpec& spec, float score_threshold);

}  // namespace millrace
