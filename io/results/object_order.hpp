#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "io/results/object.hpp"

namespace millrace {

/// Indices of the objects, the best score first, those with equal scores in their order; a score that is NaN comes
/// last.
std::vector<std::size_t> best_first(std::span<const Object> objects);

}  // namespace millrace
