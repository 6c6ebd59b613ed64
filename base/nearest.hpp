#pragma once

#include <span>
#include <string>
#include <string_view>

namespace millrace {

/// Returns the name in `known` that `given` probably misspells.
/// That is the name with the fewest inserted, removed, replaced or swapped letters.
/// Returns an empty string if every name needs more edits than a third of the length of `given`, and more than one.
std::string nearest_name(std::string_view given, std::span<const std::string> known);

/// Returns the end of a message about an unknown name, such as "; did you mean 'conf'? `millrace stages` lists them".
/// The question appears only if nearest_name() finds a name; `prefix` is put in front of that name.
/// `rest` is the text that follows the question.
std::string did_you_mean(std::string_view given, std::span<const std::string> known, std::string_view rest = {},
                         std::string_view prefix = {});

}  // namespace millrace
