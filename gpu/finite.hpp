#pragma once

#include <span>
#include <stdexcept>

namespace millrace {

/// A model gave NaN or infinity where numbers are needed. The picture fails, its neighbours in the batch do not.
struct NonFinite : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// False when any value is NaN or infinite.
bool all_finite(std::span<const float> values);

}  // namespace millrace
