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

/// What a run was told, parsed once: everything after the command line reads this, and no text.
struct Config : RunOptions {
  explicit Config(Chain stages) : chain(std::move(stages)) {}

  std::vector<View> views{};                ///< rules in the order of the recipe
  Chain chain;                              ///< stages with their options
  std::map<std::string, Chain> of_views{};  ///< of those that have options of their own, by name

  const Chain& chain_of(const std::string& view) const {
    const auto found = of_views.find(view);
    return found == of_views.end() ? chain : found->second;
  }

  /// For messages: where packages were named, by option: "detect.model" "command line, --detector".
  std::map<std::string, std::string> model_origins{};
  std::string views_origin{};
  std::vector<std::string> notes{};  ///< for the user: old names that were written
  std::string text{};                ///< the whole as a recipe, each value with its origin as a comment
  /// What determines results: stages, views, and the options of the stages used and of the run that affect results.
  std::shared_ptr<const nlohmann::json> results{};
};

/// Throws UsageError for a value that cannot be, for an option whose stage is not in the recipe, and for stages that
/// cannot follow each other; the message says where the value comes from.
Config parse_config(const Settings& settings);

/// Throws UsageError as parse_config() does for values. Stages may stand in any order: for settings that are only
/// shown.
void check_values(const Settings& settings);

}  // namespace millrace
