#include "run/settings.hpp"

#include <yaml-cpp/yaml.h>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/nearest.hpp"
#include "io/input/source.hpp"
#include "io/input/source_inputs.hpp"
#include "run/builtin.hpp"
#include "run/run_options.hpp"
#include "stages/registry.hpp"

namespace millrace {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  while (start <= text.size()) {
    const auto end = std::min(text.find(separator, start), text.size());
    std::string part = text.substr(start, end - start);
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    if (!part.empty()) parts.push_back(std::move(part));
    start = end + 1;
  }
  return parts;
}

std::string place(const std::string& path, const YAML::Node& node) {
  return path + ":" + std::to_string(node.Mark().line + 1);
}

/// A key that stands twice means one of two things; which of them cannot be told.
void refuse_twice(const YAML::Node& map, const std::string& path) {
  std::vector<std::string> keys;
  for (const auto& pair : map) {
    const auto key = pair.first.as<std::string>();
    if (std::find(keys.begin(), keys.end(), key) != keys.end())
      throw UsageError(place(path, pair.first) + ": '" + key + "' is there twice; remove one");
    keys.push_back(key);
  }
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

View read_view(const YAML::Node& node, const std::string& path) {
  const std::vector<std::string> known{"name", "match", "detector"};
  if (!node.IsMap()) throw UsageError(place(path, node) + ": a view is a map of name, match and detector");
  refuse_twice(node, path);
  View view;
  for (const auto& pair : node) {
    const auto key = pair.first.as<std::string>();
    if (!pair.second.IsScalar())
      throw UsageError(place(path, pair.second) + ": the view's " + key + " must be one value");
    const auto value = pair.second.as<std::string>();
    if (key == "name") {
      view.name = value;
    } else if (key == "match") {
      view.pattern = value;
    } else if (key == "detector") {
      view.detector = value;
    } else {
      throw UsageError(place(path, pair.first) + ": a view has no '" + key + "'" + did_you_mean(key, known));
    }
  }
  if (view.name.empty()) throw UsageError(place(path, node) + ": a view needs a name");
  return view;
}

std::string no_recipe(const std::string& path) {
  std::error_code error;  // a link to nothing, or a folder that may not be entered
  const bool missing = std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::not_found;
  std::string text = "the recipe '" + path + "' cannot be read" + (missing ? ": no such file" : "");
  if (!path.starts_with('/')) text += "; relative paths start from " + current_folder();
  const std::string builtin = find_builtin_recipe("detect.yaml");
  if (builtin.find('/') != std::string::npos)
    text += "; the program's own recipes are in " + std::filesystem::path(builtin).parent_path().string();
  return text + " (pictures are named with --input" + hint_of_value(path) + ")";
}

std::string quoted(const std::string& value) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << value;
  return out.c_str();
}

std::string flow_list(const std::vector<std::string>& values) {
  std::string text = "[";
  for (const auto& value : values) text += (text.size() > 1 ? ", " : "") + quoted(value);
  return text + "]";
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

}  // namespace

Settings::Settings() {
  RunOptions().each([&](const auto& group) { add_group(group.name, describe_options(group)); });
  for (const auto& stage : stage_table()) add_group(stage.name, stage.options);
  stages_ = default_stages();
  views_ = {View{default_view, "", ""}};
}

std::string hint_of_value(const std::string& word) {
  if (word.ends_with(".yaml") || word.ends_with(".yml")) return "";
  return "; values of one option are separated by commas: --format coco,overlay; --set needs '=': --set "
         "detect.conf=0.1";
}

void Settings::add_group(const std::string& name, const std::vector<OptionInfo>& options) {
  Group group;
  for (const auto& option : options) {
    Setting setting;
    setting.option = option;
    setting.values =
        option.type == "list" ? split(option.default_value, ',') : std::vector<std::string>{option.default_value};
    group.emplace_back(option.name, std::move(setting));
  }
  groups_.emplace_back(name, std::move(group));
}

Setting& Settings::find(const std::string& group, const std::string& name, const std::string& where) {
  std::vector<std::string> known;
  for (auto& [group_name, options] : groups_) {
    known.push_back(group_name);
    if (group_name != group) continue;
    std::vector<std::string> names;
    for (auto& [option_name, setting] : options) {
      if (option_name == name) return setting;
      names.push_back(option_name);
    }
    throw UsageError(where + ": " + group + " has no option '" + name + "'" +
                     did_you_mean(name, names, "`millrace stages` lists all options"));
  }
  throw UsageError(where + ": there is no stage or group '" + group + "'" +
                   did_you_mean(group, known, "`millrace stages` lists all of them"));
}

void Settings::read_recipe(const std::string& path) {
  std::error_code error;  // what cannot be looked at cannot be read either, which is told below
  if (!std::filesystem::is_regular_file(path, error) && std::filesystem::exists(path, error)) {
    throw UsageError("'" + path +
                     "' stands where the recipe (a YAML file) does, and is no file; pictures are named with --input");
  }
  YAML::Node recipe;
  try {
    recipe = YAML::LoadFile(path);
  } catch (const YAML::BadFile&) {
    throw UsageError(no_recipe(path));
  } catch (const YAML::ParserException& error) {
    throw UsageError(path + ":" + std::to_string(error.mark.line + 1) + ": not valid YAML: " + error.msg);
  }
  if (recipe.IsNull()) return;
  if (!recipe.IsMap()) throw UsageError(path + ": a recipe is a map with stages, views and groups of options");
  refuse_twice(recipe, path);
  for (const auto& pair : recipe) {
    const auto key = pair.first.as<std::string>();
    const std::string where = place(path, pair.first);
    if (key == "stages") {
      stages_ = scalars(pair.second, where, key);
      for (const auto& stage : stages_) find_stage(stage);
      stages_origin_ = where;
    } else if (key == "views") {
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
        Setting& setting = find(key, name, place(path, option.first));
        setting.values = scalars(option.second, place(path, option.second), key + "." + name);
        setting.origin = place(path, option.first);
      }
    }
  }
}

void Settings::set(const std::string& key_value, const std::string& origin) {
  const auto equals = key_value.find('=');
  if (equals == std::string::npos) {
    throw UsageError("--set takes group.name=value, such as detect.conf=0.3, and was given '" + key_value + "'");
  }
  const std::string key = key_value.substr(0, equals);
  const std::string value = key_value.substr(equals + 1);
  const auto dot = key.find('.');
  if (dot == std::string::npos)
    throw UsageError("--set " + key + ": options are written group.name, such as detect.conf");
  const bool list = find(key.substr(0, dot), key.substr(dot + 1), "--set " + key).option.type == "list";
  set(key, list ? split(value, ',') : std::vector<std::string>{value}, origin);
}

void Settings::set(const std::string& key, std::vector<std::string> values, const std::string& origin) {
  const auto dot = key.find('.');
  Setting& setting = find(key.substr(0, dot), key.substr(dot + 1), origin);
  // Of several --set the last one counts; an option and a --set have no order that a reader could see.
  if (setting.origin.starts_with(command_line) && origin.starts_with(command_line) && setting.origin != origin &&
      setting.values != values) {
    throw UsageError(key + " is set twice, to " + flow_list(setting.values) + " (" + setting.origin + ") and to " +
                     flow_list(values) + " (" + origin + "); leave one out");
  }
  setting.values = std::move(values);
  setting.origin = origin;
}

void Settings::set_views(std::vector<View> views, const std::string& origin) {
  views_ = std::move(views);
  views_origin_ = origin;
}

OptionValues Settings::values(const std::string& group) const {
  OptionValues values;
  for (const auto& [name, options] : groups_) {
    if (name != group) continue;
    for (const auto& [option, setting] : options) {
      if (setting.origin != "default") values[option] = setting.values;
    }
  }
  return values;
}

const Setting& Settings::at(const std::string& key) const {
  const auto dot = key.find('.');
  for (const auto& [group, options] : groups_) {
    if (group != key.substr(0, dot)) continue;
    for (const auto& [name, setting] : options) {
      if (name == key.substr(dot + 1)) return setting;
    }
  }
  throw std::logic_error("no setting is called " + key);
}

std::vector<std::pair<std::string, std::vector<OptionInfo>>> Settings::all_options() const {
  std::vector<std::pair<std::string, std::vector<OptionInfo>>> all;
  for (const auto& [group, options] : groups_) {
    std::vector<OptionInfo> infos;
    for (const auto& [name, setting] : options) infos.push_back(setting.option);
    all.emplace_back(group, std::move(infos));
  }
  return all;
}

bool Settings::used(const std::string& group) const {
  const auto& table = stage_table();
  const bool is_stage =
      std::any_of(table.begin(), table.end(), [&](const StageEntry& entry) { return entry.name == group; });
  return !is_stage || std::find(stages_.begin(), stages_.end(), group) != stages_.end();
}

UsageError Settings::located(const UsageError& error) const {
  const std::string text = error.what();
  for (const auto& [group, options] : groups_) {
    for (const auto& [name, setting] : options) {
      if (setting.origin != "default" && text.starts_with(group + "." + name + " "))
        return UsageError(setting.origin + ": " + text);
    }
  }
  return error;
}

void Settings::check_used() const {
  for (const auto& [group, options] : groups_) {
    if (used(group)) continue;
    try {
      (void)find_stage(group).parse(values(group));  // where the value is wrong too, that is said
    } catch (const UsageError& error) {
      throw located(error);
    }
    for (const auto& [name, setting] : options) {
      if (setting.origin == "default") continue;
      throw UsageError(setting.origin + ": " + group + "." + name + " has no effect, since " + group +
                       " is not among the stages " + flow_list(stages_) + ". Leave it out, or add the stage");
    }
  }
}

std::string Settings::print() const {
  std::string text = padded("stages: " + flow_list(stages_), 60) + "  # " + stages_origin_ + "\n";
  text += padded("views:", 60) + "  # " + views_origin_ + "\n";
  for (const auto& view : views_) {
    text += "  - {name: " + quoted(view.name);
    if (!view.pattern.empty()) text += ", match: " + quoted(view.pattern);
    if (!view.detector.empty()) text += ", detector: " + quoted(view.detector);
    text += "}\n";
  }
  for (const auto& [group, options] : groups_) {
    if (!used(group) || options.empty()) continue;
    text += group + ":\n";
    for (const auto& [name, setting] : options) {
      const bool list = setting.option.type == "list";
      const bool plain = setting.option.type != "text" && !list;
      const std::string value = list    ? flow_list(setting.values)
                                : plain ? setting.values.front()
                                        : quoted(setting.values.front());
      text += padded("  " + name + ": " + value, 60) + "  # " + setting.origin + "\n";
    }
  }
  return text;
}

nlohmann::json Settings::results(const Understood& understood) const {
  nlohmann::json out;
  out["stages"] = stages_;
  for (const auto& view : views_) {
    out["views"].push_back({{"name", view.name}, {"match", view.pattern}});
  }
  for (const auto& [group, options] : groups_) {
    const auto parsed = understood.find(group);
    if (parsed == understood.end()) continue;  // of a stage that is not in the recipe
    for (std::size_t i = 0; i < options.size(); ++i) {
      const auto& [name, setting] = options[i];
      if (setting.option.affects != Affects::results) continue;
      if (setting.option.type == "list") {
        auto values = setting.values;  // their order changes nothing
        std::sort(values.begin(), values.end());
        out["options"][group][name] = std::move(values);
      } else {
        out["options"][group][name] = parsed->second[i].default_value;
      }
    }
  }
  return out;
}

}  // namespace millrace
