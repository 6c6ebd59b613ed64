// The part of Settings that reads recipes.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>

#include "base/nearest.hpp"
#include "io/input/source_inputs.hpp"
#include "run/builtin.hpp"
#include "run/settings.hpp"
#include "stages/registry.hpp"

namespace millrace {
namespace {

/// "configs/a.yaml:12". yaml-cpp counts lines from 0.
std::string location(const std::string& path, const YAML::Node& node) {
  return path + ":" + std::to_string(node.Mark().line + 1);
}

/// Throws if a key appears twice in a map. yaml-cpp accepts that, but one value would have no effect.
void refuse_twice(const YAML::Node& map, const std::string& path) {
  std::vector<std::string> keys;
  for (const auto& pair : map) {
    const auto key = pair.first.as<std::string>();
    if (std::find(keys.begin(), keys.end(), key) != keys.end())
      throw UsageError(location(path, pair.first) + ": '" + key + "' appears twice; remove one");
    keys.push_back(key);
  }
}

/// Sets an option from a recipe.
/// An option can be under its stage, in the stage's entry or under an old name. A recipe may set it only once.
void take(Setting& setting, std::vector<std::string> values, const std::string& where, const std::string& path) {
  if (setting.origin.starts_with(path + ":"))
    throw UsageError(where + ": this option is set already at " + setting.origin + "; remove one");
  setting.values = std::move(values);
  setting.origin = where;
}

std::vector<std::string> scalars(const YAML::Node& node, const std::string& where, const std::string& key) {
  if (node.IsScalar()) return {node.as<std::string>()};
  if (node.IsNull()) return {};
  if (!node.IsSequence()) throw UsageError(where + ": " + key + " must be a value or a list of values");
  std::vector<std::string> values;
  for (const auto& entry : node) {
    if (!entry.IsScalar()) throw UsageError(where + ": the entries of " + key + " must be plain values");
    values.push_back(entry.as<std::string>());
  }
  return values;
}

std::string no_recipe(const std::string& path) {
  std::error_code error;  // a link to nothing, or a folder that may not be entered
  const bool missing = std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::not_found;
  std::string text = "the recipe '" + path + "' cannot be read" + (missing ? ": no such file" : "");
  if (!path.starts_with('/')) text += "; relative paths start from " + current_folder();
  const std::string builtin = find_builtin_recipe("detect.yaml");
  // Without a folder, it is a bare name: no built-in recipe was found.
  if (builtin.find('/') != std::string::npos)
    text += "; the built-in recipes are in " + std::filesystem::path(builtin).parent_path().string();
  return text + " (name pictures with --input" + hint_of_value(path) + ")";
}

}  // namespace

RecipeStage Settings::read_stage(const YAML::Node& node, const std::string& path) {
  const std::string where = location(path, node);
  if (node.IsScalar()) {
    const RecipeStage plain(node.as<std::string>());
    find_stage(plain.stage);
    return plain;
  }
  if (!node.IsMap() || !node["name"] || !node["stage"])
    throw UsageError(where + ": a stage must be a name, or a map with name, stage and options");
  refuse_twice(node, path);
  RecipeStage own(node["name"].as<std::string>(), node["stage"].as<std::string>());
  const StageEntry& entry = find_stage(own.stage);
  const bool taken = own.name.empty() || std::any_of(groups_.begin(), groups_.end(), [&](const auto& group) {
                       return group.first == own.name && own.name != own.stage;
                     });
  if (taken)
    throw UsageError(where + ": a stage cannot be called '" + own.name +
                     "', because the name is taken or empty; choose another");
  // A stage without S::Own has no field of its own, so two of them would write the same fields.
  if (own.name != own.stage && entry.default_info().own == nullptr) {
    throw UsageError(where + ": '" + own.stage + "' can be in a recipe only once, under its own name; write {name: " +
                     own.stage + ", stage: " + own.stage + ", ...}");
  }
  if (own.name.find('.') != std::string::npos) {
    throw UsageError(where + ": a stage cannot be called '" + own.name + "', because its options are written " +
                     "NAME.OPTION; leave the dot out");
  }
  // A stage with its own name has its own options. The constructor made the groups of all stages of the table.
  if (own.name != own.stage) add_group(own.name, entry.options);
  for (const auto& option : node) {
    const auto key = option.first.as<std::string>();
    if (key == "name" || key == "stage") continue;
    Setting& setting = find(own.name, key, location(path, option.first));
    take(setting, scalars(option.second, location(path, option.second), own.name + "." + key),
         location(path, option.first), path);
  }
  return own;
}

void Settings::read_stages(const YAML::Node& stages, const std::string& path, const std::string& where) {
  if (!stages.IsSequence() && !stages.IsScalar())
    throw UsageError(where + ": stages must be a value or a list of values");
  stages_.clear();
  if (stages.IsScalar()) stages_.push_back(read_stage(stages, path));
  for (const auto& node : stages) stages_.push_back(read_stage(node, path));
  stages_origin_ = where;
}

View Settings::read_view(const YAML::Node& node, const std::string& path) {
  if (!node.IsMap())
    throw UsageError(location(path, node) + ": a view must be a map with name, match, detector and options by stage");
  refuse_twice(node, path);
  std::vector<std::string> known{"name", "match", "detector"};
  for (const RecipeStage& stage : stages_) known.push_back(stage.name);
  View view;
  const auto set = [&](const std::string& stage, const std::string& name, std::vector<std::string> values,
                       const YAML::Node& at) {
    if (!view.options[stage].emplace(name, std::move(values)).second)
      throw UsageError(location(path, at) + ": this view sets " + stage + "." + name + " twice; remove one");
  };
  for (const auto& pair : node) {
    const auto key = pair.first.as<std::string>();
    const std::string where = location(path, pair.first);
    if (std::find(known.begin(), known.end(), key) == known.end())
      throw UsageError(where + ": a view has no '" + key + "'" + did_you_mean(key, known));
    // A stage of the recipe, with the options of this view.
    if (runs(key) && pair.second.IsMap()) {
      refuse_twice(pair.second, path);
      for (const auto& option : pair.second) {
        const auto name = option.first.as<std::string>();
        find(key, name, location(path, option.first));  // throws where there is no such option
        set(key, name, scalars(option.second, location(path, option.second), key + "." + name), option.first);
      }
      continue;
    }
    if (!pair.second.IsScalar())
      throw UsageError(location(path, pair.second) + ": the view's " + key + " must be one value");
    const auto value = pair.second.as<std::string>();
    if (key == "name") {
      view.name = value;
    } else if (key == "match") {
      view.pattern = value;
    } else if (key == "detector") {
      // short for detect: {model: ...}
      set("detect", "model", {value}, pair.first);
    } else {
      throw UsageError(location(path, pair.second) + ": the view's " + key + " must be a map of options");
    }
  }
  if (view.name.empty()) throw UsageError(location(path, node) + ": a view needs a name");
  return view;
}

void Settings::read_recipe(const std::string& path) {
  std::error_code error;  // a path that cannot be checked gets its message below, when it cannot be read
  if (!std::filesystem::is_regular_file(path, error) && std::filesystem::exists(path, error)) {
    throw UsageError("'" + path +
                     "' is given as the recipe (a YAML file), but is not a file; name pictures with --input");
  }
  YAML::Node recipe;
  try {
    recipe = YAML::LoadFile(path);
  } catch (const YAML::BadFile&) {
    throw UsageError(no_recipe(path));
  } catch (const YAML::ParserException& parser_error) {
    throw UsageError(path + ":" + std::to_string(parser_error.mark.line + 1) + ": not valid YAML: " + parser_error.msg);
  }
  if (recipe.IsNull()) return;
  if (!recipe.IsMap()) throw UsageError(path + ": a recipe must be a map with stages, views and groups of options");
  refuse_twice(recipe, path);
  // Stages are read first, wherever they are in the file, because they add groups of options.
  for (const auto& pair : recipe) {
    if (pair.first.as<std::string>() == "stages") read_stages(pair.second, path, location(path, pair.first));
  }
  for (const auto& pair : recipe) {
    const auto key = pair.first.as<std::string>();
    const std::string where = location(path, pair.first);
    if (key == "stages") continue;
    if (key == "views") {
      if (!pair.second.IsSequence() || pair.second.size() == 0)
        throw UsageError(where + ": views must be a list of views");
      views_.clear();
      for (const auto& node : pair.second) views_.push_back(read_view(node, path));
      views_origin_ = where;
    } else if (!pair.second.IsMap()) {
      find(key, "", where);  // throws for an unknown group; a known one without a map is the error below
    } else {
      refuse_twice(pair.second, path);
      for (const auto& option : pair.second) {
        const auto name = option.first.as<std::string>();
        Setting& setting = find(key, name, location(path, option.first));
        take(setting, scalars(option.second, location(path, option.second), key + "." + name),
             location(path, option.first), path);
      }
    }
  }
}

}  // namespace millrace
