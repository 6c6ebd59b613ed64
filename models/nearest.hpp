#pragma once

#include <span>
#include <string>
#include <string_view>

namespace millrace {

/// Of `known` the name that `given` was probably meant to be: the fewest inserted, removed, replaced or swapped
/// letters, at most a third of its length; empty when nothing is that near.
std::string nearest_name(std::string_view given, std::span<const std::string> known);

}  // namespace millrace
