#include "stages/registry.hpp"

#include "base/nearest.hpp"
#include "stages/model_call.hpp"

namespace millrace {

namespace {

struct Row {
  StageEntry (*entry)();
  bool by_default = false;
};
constexpr bool by_default = true;

}  // namespace

// The table of stages in the order of a full pipeline, one row for each stage.
// The default recipe has the rows with by_default, so a new stage changes no results until a recipe names it.
// `class` declares the stage in its row, so this file needs no header of a stage.
// The table is not in a function or an unnamed namespace, where `class` would declare another class.
// clang-format off
constexpr Row rows[] = {
    {stage_entry<class Decode>, by_default},
    {stage_entry<class Tiles>},
    {stage_entry<class Preprocess>, by_default},
    {stage_entry<class Detect>, by_default},
    {stage_entry<class Segment>, by_default},
    {stage_entry<class Embed>},
    {stage_entry<class Categorize>},
    {stage_entry<class Regress>},
    {stage_entry<class Semantic>},
    {stage_entry<class Postprocess>, by_default},
    {stage_entry<class Encode>, by_default},
};
// clang-format on

const std::vector<StageEntry>& stage_table() {
  static const std::vector<StageEntry> entries = [] {
    std::vector<StageEntry> made;
    for (const auto& row : rows) made.push_back(row.entry());
    return made;
  }();
  return entries;
}

std::vector<RecipeStage> default_stages() {
  std::vector<RecipeStage> names;
  for (const auto& row : rows) {
    if (row.by_default) names.emplace_back(row.entry().name);
  }
  return names;
}

const StageEntry& find_stage(std::string_view name, const std::vector<StageEntry>& table) {
  std::vector<std::string> names;
  for (const auto& entry : table) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  throw UsageError("'" + std::string(name) + "' is no stage" +
                   did_you_mean(name, names, "`millrace stages` lists them"));
}

CounterInfos counters_of(const std::vector<StageEntry>& table) {
  // Counters of call_rows(), which is no stage.
  CounterInfos all{&split_calls, &bisect_calls};
  for (const auto& entry : table) {
    const CounterInfos counters = entry.default_info().counters;
    all.insert(all.end(), counters.begin(), counters.end());
  }
  return all;
}

}  // namespace millrace
