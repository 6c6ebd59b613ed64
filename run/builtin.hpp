#pragma once

#include <string>
#include <vector>

#include "run/settings.hpp"

namespace millrace {

/// The folder with `file`: share/millrace/SHARED of the installation.
/// For a program that is not installed: IN_SOURCES, a folder in the sources from which it was built.
/// Empty if the file is in neither.
std::string find_data(const char* shared, const char* in_sources, const std::string& file);

// The built-in packages are detectors for three views and a segmenter, trained by models/demo/train.py.
// They know only the scenes that models/demo/scenes.py draws.

/// The folder of the built-in packages: share/millrace/models of the installation.
/// For a program that is not installed: models/builtin of the sources from which it was built.
/// Empty if the packages are in neither.
std::string find_builtin_models();

/// The path of a built-in recipe, such as "detect.yaml". Returns the bare name if there is no such file.
std::string find_builtin_recipe(const std::string& name);

/// If the settings name no model at all, sets the built-in models that the stages need. `folder` has the packages.
/// With the detectors, it also sets their views if the recipe has none, and detect.conf if it is not set.
/// Sets no detector if a manifest may contain boxes, because the manifest numbers classes in its own way.
/// Returns true if it set a model.
bool use_builtin_models(Settings& settings, const std::string& folder);

/// Whether every input is a folder of drawn scenes, or is inside one, at most two folders deep.
bool are_drawn_scenes(const std::vector<std::string>& inputs);

}  // namespace millrace
