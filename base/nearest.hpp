#pragma once

#include <span>
#include <string>
#include <string_view>

namespace millrace {

/// Of `known` the name that `given` was probably meant to be: the fewest inserted, removed, replaced or swapped
/// letters, at most a third of its length; empty when nothing is that near.
std::string nearest_name(std::string_view given, std::span<const std::string> known);

/// The end of a message about an unknown name: "; did you mean 'conf'?" where one is near, then `rest` ("`millrace
/// stages` lists them"). `prefix` stands before the near name.
std::string did_you_mean(std::string_view given, std::span<const std::string> known, std::string_view rest = {},
                         std::string_view prefix = {});

}  // namespace millrace
