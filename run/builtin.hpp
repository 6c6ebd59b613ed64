#pragma once

#include <string>
#include <vector>

#include "run/settings.hpp"

namespace millrace {

// The packages that come with the program: detectors for three views and a segmenter, trained by models/demo/train.py.
// They know the scenes that models/demo/scenes.py draws, and nothing else.

/// Their folder: share/millrace/models beside the installed program, else models/builtin of the sources it was built
/// from. Empty where neither holds them.
std::string find_builtin_models();

/// The path of a recipe that comes with the program, "detect.yaml"; the bare name where it is not found.
std::string find_builtin_recipe(const std::string& name);

/// Names those that the stages need, if the settings name no model at all, and with the detectors their views where the
/// recipe has none, and the score from which they are worth showing where none is set. A detector is not named where a
/// manifest may bring the boxes, whose classes are its own. True if a model was named.
bool use_builtin_models(Settings& settings, const std::string& folder);

/// Whether every input is a folder of drawn scenes or lies in one, at most two folders deep.
bool are_drawn_scenes(const std::vector<std::string>& inputs);

}  // namespace millrace
