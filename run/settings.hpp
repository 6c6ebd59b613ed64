#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "stages/options.hpp"
#include "stages/stage.hpp"

namespace YAML {
class Node;
}

namespace millrace {

/// The origin of what the command line sets; of its shorthands, the beginning.
inline constexpr const char* command_line = "command line";

/// One value and where it came from: "default", "configs/a.yaml:12" or "command line".
struct Setting {
  std::vector<std::string> values;
  std::string origin = "default";
  OptionInfo option;
};

/// What the program was told, from three layers: the command line overrides the recipe, the recipe the defaults.
///
/// Keys are `group.name`: a stage's options stand under the stage's name, the run's under input, output, models, batch,
/// gate, read, threads, trace and device. Recipes are YAML: `stages:` (in order: names, or maps of name, stage and
/// options), `views:` (name, match, detector, and maps of options by stage), and a map for each group.
class Settings {
 public:
  /// All defaults, with the full pipeline as stages.
  Settings();

  /// Overrides with a recipe. Throws UsageError naming file, line and, for unknown keys, the nearest known one.
  void read_recipe(const std::string& path);

  /// Overrides one value; a list is split at commas. `key_value` is "detect.conf=0.3". Throws UsageError where an
  /// option of the command line and its --set contradict each other.
  void set(const std::string& key_value, const std::string& origin = command_line);
  void set(const std::string& key, std::vector<std::string> values, const std::string& origin = command_line);

  void set_views(std::vector<View> views, const std::string& origin);

  /// Throws UsageError for an option that is set although its stage is not in the recipe.
  void check_used() const;

  /// The error of a value, with the place where that value was set.
  UsageError located(const UsageError& error) const;

  /// The values of a group that differ in origin from the defaults; a group's Options struct is parsed from them.
  OptionValues values(const std::string& group) const;
  /// The same of a stage for the pictures of a view.
  OptionValues values(const std::string& stage, const std::string& view) const;
  /// Whether a view has options of its own for this stage.
  bool differs(const std::string& stage, const std::string& view) const;

  /// Throws UsageError that says where the value was set.
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

  /// The value of "group.name" as it was written; the default where nothing was.
  const std::vector<std::string>& written(const std::string& key) const { return at(key).values; }
  /// The same of an option that has one value; empty where it was set to none.
  std::string text(const std::string& key) const { return at(key).values.empty() ? "" : at(key).values.front(); }

  const std::vector<StagePlace>& stages() const { return stages_; }
  /// Whether the recipe has a stage of this name.
  bool runs(const std::string& name) const;
  const std::vector<View>& views() const { return views_; }

  /// Of "group.name".
  const std::string& help(const std::string& key) const { return at(key).option.help; }
  /// Where the value of "group.name" comes from, and where the views do.
  const std::string& origin(const std::string& key) const { return at(key).origin; }
  const std::string& views_origin() const { return views_origin_; }

  /// The whole as a recipe, each value with its origin as a comment; reading it back gives the same settings.
  std::string print() const;

  /// Names that were written and have changed since, in sentences.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Options of a group as the program understood them, so that 0.30 is 0.3 and true is yes.
  using Understood = std::map<std::string, std::vector<OptionInfo>>;

  /// What determines results, for the plan: stages, views and all options that affect results, of the groups that were
  /// parsed; `of_views` has those of views that have options of their own. Packages are not among them, since their
  /// names determine nothing.
  nlohmann::json results(const Understood& understood, const std::map<std::string, Understood>& of_views) const;

 private:
  using Group = std::vector<std::pair<std::string, Setting>>;
  const Setting& at(const std::string& key) const;
  Setting& find(const std::string& group, const std::string& name, const std::string& where);
  void add_group(const std::string& name, const std::vector<OptionInfo>& options);
  bool used(const std::string& group) const;
  void read_stages(const YAML::Node& stages, const std::string& path, const std::string& where);
  StagePlace read_stage(const YAML::Node& node, const std::string& path);
  View read_view(const YAML::Node& node, const std::string& path);

  std::vector<std::pair<std::string, Group>> groups_;
  std::vector<StagePlace> stages_;
  std::string stages_origin_ = "default";
  std::vector<View> views_;
  std::string views_origin_ = "default";
  std::vector<std::string> notes_;
};

/// What the writer of a word that stands where a recipe does, and is not called like one, probably meant; else empty.
std::string hint_of_value(const std::string& word);

}  // namespace millrace
