#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stages/stage.hpp"

namespace millrace {

/// Every stage of the program, in the order of a full pipeline.
const std::vector<StageEntry>& stage_table();

/// The stages of a run without a recipe.
std::vector<RecipeStage> default_stages();

/// The row of that name. Throws UsageError for an unknown name, and suggests the nearest known one.
const StageEntry& find_stage(std::string_view name, const std::vector<StageEntry>& table = stage_table());

/// The counters of all stages in a table, and those of model calls.
CounterInfos counters_of(const std::vector<StageEntry>& table = stage_table());

}  // namespace millrace
