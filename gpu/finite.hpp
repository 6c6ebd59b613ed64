#pragma once

#include <span>
#include <stdexcept>

namespace millrace {

/// The output of a model contains NaN or infinity. Only that picture of the batch fails.
struct NonFinite : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr const char* output_not_finite = "the detector's output holds NaN or infinity";
inline constexpr const char* box_not_finite = "a detected box is infinite";
inline constexpr const char* logits_not_finite = "mask logits hold NaN or infinity";
inline constexpr const char* iou_not_finite = "the predicted IoU is not finite";

/// Returns false if any value is NaN or infinite.
bool all_finite(std::span<const float> values);

}  // namespace millrace
