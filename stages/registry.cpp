#include "stages/registry.hpp"

#include "base/nearest.hpp"

namespace millrace {

// The table of stages, in the order of a full pipeline, a row a line. `class` declares the stage in its row, so that a
// row is all this file has to know of it; within a function or an unnamed namespace it would declare another class.
// clang-format off
constexpr StageEntry (*rows[])() = {
    stage_entry<class Decode>,
    stage_entry<class Preprocess>,
    stage_entry<class Detect>,
    stage_entry<class Segment>,
    stage_entry<class Postprocess>,
    stage_entry<class Encode>,
};
// clang-format on

const std::vector<StageEntry>& stage_table() {
  static const std::vector<StageEntry> entries = [] {
    std::vector<StageEntry> made;
    for (const auto& row : rows) made.push_back(row());
    return made;
  }();
  return entries;
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

}  // namespace millrace
