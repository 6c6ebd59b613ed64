#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stages/stage.hpp"

namespace millrace {

/// Every stage the program knows, in the order of a full pipeline.
const std::vector<StageEntry>& stage_table();

/// Names of those that a run has where no recipe says otherwise.
std::vector<StagePlace> default_stages();

/// The row of that name; throws UsageError with the nearest name if there is none.
const StageEntry& find_stage(std::string_view name, const std::vector<StageEntry>& table = stage_table());

/// What the stages of a table count, whether a recipe has them or not, and what their calls of models count.
CounterInfos counters_of(const std::vector<StageEntry>& table = stage_table());

}  // namespace millrace
