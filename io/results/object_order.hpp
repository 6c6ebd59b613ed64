#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "io/results/object.hpp"

namespace millrace {

/// Indices of the objects, highest score first. Equal scores keep their order; NaN scores come last.
std::vector<std::size_t> best_first(std::span<const Object> objects);

}  // namespace millrace
