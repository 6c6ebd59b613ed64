#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "run/run_options.hpp"
#include "stages/chain.hpp"

namespace millrace {

class Settings;

/// The parsed settings of a run. All code after the command line reads these and not the text.
struct Config : RunOptions {
  explicit Config(Chain stages) : chain(std::move(stages)) {}

  std::vector<View> views{};                ///< rules in the order of the recipe
  Chain chain;                              ///< the stages with the recipe's options
  std::map<std::string, Chain> of_views{};  ///< by name: chains of the views with options of their own

  const Chain& chain_of(const std::string& view) const {
    const auto found = of_views.find(view);
    return found == of_views.end() ? chain : found->second;
  }

  /// For messages: the origin of each package by option, such as "detect.model": "command line, --detector".
  std::map<std::string, std::string> model_origins{};
  std::string views_origin{};
  std::vector<std::string> notes{};  ///< for the user: options that were written under an old name
  std::string text{};                ///< all settings as a recipe, with the origin of each value as a comment
  /// Everything that determines results: stages, views, and the options with Affects::results of run and stages.
  std::shared_ptr<const nlohmann::json> results{};
};

/// Throws UsageError, which names the origin of the value, in these cases:
/// - a value is not valid
/// - an option is set, but its stage is not in the recipe
/// - the stages cannot follow each other
Config parse_config(const Settings& settings);

/// Throws UsageError for values as parse_config() does, but accepts stages in any order.
/// It is for settings that are only shown.
void check_values(const Settings& settings);

}  // namespace millrace
