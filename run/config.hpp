#pragma once

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

  std::vector<View> views{};  ///< rules in the order of the recipe
  Chain chain;                ///< stages with their options

  /// For messages: where the names of the models come from, "command line, --detector" or "a.yaml:3".
  std::string detector_origin{}, segmenter_origin{}, views_origin{};
  std::string text{};  ///< the whole as a recipe, each value with its origin as a comment
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
