#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "stages/options.hpp"
#include "stages/stage.hpp"

namespace YAML {  // NOLINT(readability-identifier-naming): the name belongs to yaml-cpp
class Node;
}

namespace millrace {

/// The origin of values from the command line. The origin of a shorthand begins with it: "command line, --detector".
inline constexpr const char* command_line = "command line";

/// One value and its origin: "default", "configs/a.yaml:12" or "command line".
struct Setting {
  std::vector<std::string> values;
  std::string origin = "default";
  OptionInfo option;
};

/// The settings from three layers: the command line overrides the recipe, and the recipe overrides the defaults.
///
/// Keys are `group.name`. The group is the name of a stage, or a group of the run: input, output, models, batch, gate,
/// read, threads, trace, device.
///
/// A recipe is a YAML file with these keys:
/// - `stages:` lists, in order, names, or maps with name, stage and options
/// - `views:` lists maps with name, match, detector, and maps of options by stage
/// - a key for each group, with a map of options
class Settings {
 public:
  /// All defaults, with the full pipeline as stages.
  Settings();

  /// Overrides values with those of a recipe.
  /// Throws UsageError that names file and line and, for an unknown key, the nearest known one.
  void read_recipe(const std::string& path);

  /// Overrides one value. `key_value` is "detect.conf=0.3"; a list is split at commas.
  /// Throws UsageError for an unknown key, or if a shorthand of the command line and a --set contradict each other.
  void set(const std::string& key_value, const std::string& origin = command_line);
  void set(const std::string& key, std::vector<std::string> values, const std::string& origin = command_line);

  void set_views(std::vector<View> views, const std::string& origin);

  /// Throws UsageError if an option is set, but its stage is not in the recipe. Packages are no error.
  void check_used() const;

  /// The error with the origin of the value in front, if its message begins with the key of a value that was set.
  UsageError located(const UsageError& error) const;

  /// The values of a group that were set, for parse_options(). Defaults are not among them.
  OptionValues values(const std::string& group) const;
  /// The same for a stage and the pictures of a view.
  OptionValues values(const std::string& stage, const std::string& view) const;
  /// Whether a view has options of its own for this stage.
  bool differs(const std::string& stage, const std::string& view) const;

  /// The options of a group of the run. Throws UsageError that names the origin of the value.
  template <class Options>
  Options parse() const {
    try {
      return parse_options<Options>(Options::name, values(Options::name));
    } catch (const UsageError& error) {
      throw located(error);
    }
  }

  /// Every group with its options, in the order of print().
  std::vector<std::pair<std::string, std::vector<OptionInfo>>> all_options() const;

  /// The value of "group.name" as it was written, or the default.
  const std::vector<std::string>& written(const std::string& key) const { return at(key).values; }
  /// The same for an option with one value. Empty if it was set to nothing.
  std::string text(const std::string& key) const { return at(key).values.empty() ? "" : at(key).values.front(); }

  const std::vector<RecipeStage>& stages() const { return stages_; }
  /// Whether the recipe has a stage of this name.
  bool runs(const std::string& name) const;
  const std::vector<View>& views() const { return views_; }

  /// The help of "group.name".
  const std::string& help(const std::string& key) const { return at(key).option.help; }
  /// The origin of the value of "group.name", and that of the views.
  const std::string& origin(const std::string& key) const { return at(key).origin; }
  const std::string& views_origin() const { return views_origin_; }

  /// All settings as a recipe, with the origin of each value as a comment. Reading it back gives the same settings.
  std::string print() const;

  /// Sentences about options that were written under an old name.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Options by group, with the values as the program understood them: 0.30 is 0.3, and true is yes.
  using Understood = std::map<std::string, std::vector<OptionInfo>>;

  /// Everything that determines results, for the plan: stages, views, and the options with Affects::results.
  /// `understood` has the groups of the recipe, `of_views` those of views with options of their own.
  /// Packages are left out, because only their content determines results and not their folder.
  nlohmann::json results(const Understood& understood, const std::map<std::string, Understood>& of_views) const;

 private:
  using Group = std::vector<std::pair<std::string, Setting>>;
  const Setting& at(const std::string& key) const;
  Setting& find(const std::string& group, const std::string& name, const std::string& where);
  void add_group(const std::string& name, const std::vector<OptionInfo>& options);
  bool used(const std::string& group) const;
  void read_stages(const YAML::Node& stages, const std::string& path, const std::string& where);
  RecipeStage read_stage(const YAML::Node& node, const std::string& path);
  View read_view(const YAML::Node& node, const std::string& path);

  std::vector<std::pair<std::string, Group>> groups_;
  std::vector<RecipeStage> stages_;
  std::string stages_origin_ = "default";
  std::vector<View> views_;
  std::string views_origin_ = "default";
  std::vector<std::string> notes_;
};

/// A hint about a word that was given as a recipe but has no recipe's extension. Empty if it has one.
std::string hint_of_value(const std::string& word);

}  // namespace millrace
