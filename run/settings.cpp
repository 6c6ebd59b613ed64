#include "run/settings.hpp"

#include <yaml-cpp/yaml.h>
#include <algorithm>
#include <array>
#include <stdexcept>

#include "base/json.hpp"
#include "base/nearest.hpp"
#include "io/input/source.hpp"
#include "io/input/source_inputs.hpp"
#include "run/builtin.hpp"
#include "run/run_options.hpp"
#include "stages/registry.hpp"

namespace millrace {
namespace {

/// The parts without spaces around them. Empty parts are left out.
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

/// Old names of options, and their new stage and option.
struct Renamed {
  const char *group, *name, *stage, *option;
};
constexpr std::array<Renamed, 2> renamed_options{
    {{"models", "detector", "detect", "model"}, {"models", "segmenter", "segment", "model"}}};

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

/// As in a recipe, because print() gives a recipe.
std::string stage_list(const std::vector<RecipeStage>& stages) {
  std::string text = "[";
  for (const RecipeStage& stage : stages) {
    if (text.size() > 1) text += ", ";
    text += stage.name == stage.stage ? quoted(stage.name)
                                      : "{name: " + quoted(stage.name) + ", stage: " + quoted(stage.stage) + "}";
  }
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
  views_ = {View{default_view, "", {}}};
}

std::string hint_of_value(const std::string& word) {
  if (word.ends_with(".yaml") || word.ends_with(".yml")) return "";
  return "; separate the values of one option by commas: --format coco,overlay; --set needs '=': --set "
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
  for (const Renamed& renamed : renamed_options) {
    if (group != renamed.group || name != renamed.name) continue;
    const std::string said = group + "." + name + " is called " + renamed.stage + "." + renamed.option + " now";
    // One note for each old name: set() calls find() twice, with different places.
    if (std::none_of(notes_.begin(), notes_.end(), [&](const std::string& note) { return note.ends_with(said); }))
      notes_.push_back(where + ": " + said);
    return find(renamed.stage, renamed.option, where);
  }
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

void Settings::set(const std::string& key_value, const std::string& origin) {
  const auto equals = key_value.find('=');
  if (equals == std::string::npos) {
    throw UsageError("--set takes group.name=value, such as detect.conf=0.3, but was given '" + key_value + "'");
  }
  const std::string key = key_value.substr(0, equals);
  const std::string value = key_value.substr(equals + 1);
  const auto dot = key.find('.');
  if (dot == std::string::npos)
    throw UsageError("--set " + key + ": write an option as group.name, such as detect.conf");
  const bool list = find(key.substr(0, dot), key.substr(dot + 1), "--set " + key).option.type == "list";
  set(key, list ? split(value, ',') : std::vector<std::string>{value}, origin);
}

void Settings::set(const std::string& key, std::vector<std::string> values, const std::string& origin) {
  const auto dot = key.find('.');
  Setting& setting = find(key.substr(0, dot), key.substr(dot + 1), origin);
  // Of several --set the last one wins. A shorthand and a --set have no visible order, so they must agree.
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

OptionValues Settings::values(const std::string& stage, const std::string& view) const {
  OptionValues all = values(stage);
  for (const View& rule : views_) {
    const auto own = rule.options.find(stage);
    if (rule.name != view || own == rule.options.end()) continue;
    for (const auto& [option, written] : own->second) all[option] = written;
  }
  return all;
}

bool Settings::differs(const std::string& stage, const std::string& view) const {
  return std::any_of(views_.begin(), views_.end(),
                     [&](const View& rule) { return rule.name == view && rule.options.count(stage) > 0; });
}

bool Settings::runs(const std::string& name) const {
  return std::any_of(stages_.begin(), stages_.end(), [&](const RecipeStage& stage) { return stage.name == name; });
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
  return !is_stage || runs(group);
}

UsageError Settings::located(const UsageError& error) const {
  const std::string text = error.what();
  for (const auto& [group, options] : groups_) {
    for (const auto& [name, setting] : options) {
      // Messages about a value begin with the name of its option.
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
      (void)find_stage(group).parse(values(group), group);  // a wrong value is reported first
    } catch (const UsageError& error) {
      throw located(error);
    }
    for (const auto& [name, setting] : options) {
      // A package that no stage of this recipe calls is no error, so that one command line works with several recipes.
      if (setting.origin == "default" || setting.option.type == "package") continue;
      throw UsageError(setting.origin + ": " + group + "." + name + " has no effect, since " + group +
                       " is not among the stages " + stage_list(stages_) + ". Leave it out, or add the stage");
    }
  }
}

std::string Settings::print() const {
  std::string text = padded("stages: " + stage_list(stages_), 60) + "  # " + stages_origin_ + "\n";
  text += padded("views:", 60) + "  # " + views_origin_ + "\n";
  for (const auto& view : views_) {
    text += "  - {name: " + quoted(view.name);
    if (!view.pattern.empty()) text += ", match: " + quoted(view.pattern);
    for (const auto& [stage, options] : view.options) {
      text += ", " + stage + ": {";
      for (const auto& [option, values] : options)
        text += (text.back() == '{' ? "" : ", ") + option + ": " + flow_list(values);
      text += "}";
    }
    text += "}\n";
  }
  for (const auto& [group, options] : groups_) {
    if (!used(group) || options.empty()) continue;
    text += group + ":\n";
    for (const auto& [name, setting] : options) {
      const bool list = setting.option.type == "list";
      // Text is quoted, because YAML could read it as something else.
      const bool plain = setting.option.type != "text" && setting.option.type != "package" && !list;
      const std::string value = list    ? flow_list(setting.values)
                                : plain ? setting.values.front()
                                        : quoted(setting.values.front());
      text += padded("  " + name + ": " + value, 60) + "  # " + setting.origin + "\n";
    }
  }
  return text;
}

namespace {

/// The options that determine results; if `only` is given, those that it names.
nlohmann::json results_of(const std::vector<std::pair<std::string, Setting>>& options,
                          const std::vector<OptionInfo>& understood, const OptionValues* only) {
  nlohmann::json out = nlohmann::json::object();
  for (std::size_t i = 0; i < options.size(); ++i) {
    const auto& [name, setting] = options[i];
    const bool asked = only == nullptr || only->count(name) > 0;
    if (!asked || setting.option.affects != Affects::results || setting.option.type == "package") continue;
    if (setting.option.type == "list") {
      auto values = only == nullptr ? setting.values : only->at(name);  // sorted, because their order changes no result
      std::sort(values.begin(), values.end());
      out[name] = std::move(values);
    } else {
      // `understood` has the same options in the same order, each with its value as the default.
      out[name] = understood[i].default_value;
    }
  }
  return out;
}

}  // namespace

nlohmann::json Settings::results(const Understood& understood,
                                 const std::map<std::string, Understood>& of_views) const {
  nlohmann::json out;
  for (const RecipeStage& stage : stages_) {
    if (stage.name == stage.stage) {
      out["stages"].push_back(stage.name);
    } else {
      out["stages"].push_back({{"name", stage.name}, {"stage", stage.stage}});
    }
  }
  for (const auto& view : views_) {
    nlohmann::json one{{"name", view.name}, {"match", view.pattern}};
    for (const auto& [group, options] : groups_) {
      const auto own = view.options.find(group);
      if (own == view.options.end() || understood.count(group) == 0) continue;
      auto found = results_of(options, of_views.at(view.name).at(group), &own->second);
      if (!found.empty()) one["options"][group] = std::move(found);
    }
    out["views"].push_back(std::move(one));
  }
  for (const auto& [group, options] : groups_) {
    const auto parsed = understood.find(group);
    if (parsed == understood.end()) continue;  // a stage that is not in the recipe
    auto found = results_of(options, parsed->second, nullptr);
    if (!found.empty()) out["options"][group] = std::move(found);
  }
  return out;
}

}  // namespace millrace
