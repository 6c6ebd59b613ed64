#pragma once

#include <stdexcept>
#include <vector>

#include "base/box.hpp"
#include "base/tensor.hpp"

namespace millrace {

/// The layout of a detector's output, for C classes and `boxes` rows of a picture.
enum class HeadLayout {
  /// [B, 4 + C, boxes], float32: centre x, y, w, h in input pixels, then class scores, after their sigmoid.
  /// Overlapping boxes need suppression.
  v8,
  /// [B, boxes, 6], float32: x0, y0, x1, y1 in input pixels, score, class number. The model has removed overlaps.
  end_to_end,
};

/// The head of a detector, from its package.
struct HeadSpec {
  HeadLayout layout = HeadLayout::v8;
  int boxes = 8400;  ///< of one picture
  int classes = 80;
};

/// Boxes before non-maximum suppression, in the order of the output.
struct Candidates {
  std::vector<Box> boxes;  ///< input pixels, not clipped
  std::vector<float> scores;
  std::vector<int> classes;
};

/// Throws std::invalid_argument if type or shape differ from the layout.
void check_head_output(const Tensor& output, const HeadSpec& spec);

inline constexpr const char* class_not_known =
    "the detector returned a class number outside `classes` of its model.yaml; export the package again";

/// A row above the threshold has a class number that is not a whole number in 0..classes - 1.
/// Only that picture of the batch fails.
struct UnknownClass : std::runtime_error {
  UnknownClass() : std::runtime_error(class_not_known) {}
};

/// Returns the boxes of one picture of a batch whose score is >= score_threshold. `output` is on the host.
/// v8: at most one box for each column, of its best class. Of equal scores, the lowest class index wins.
/// Throws like check_head_output(). Throws NonFinite if the picture's part of the output contains NaN or infinity, or a
/// box becomes infinite. Throws UnknownClass.
Candidates decode_head(const Tensor& output, int batch_index, const HeadSpec& spec, float score_threshold);

}  // namespace millrace
