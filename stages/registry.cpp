#include "stages/registry.hpp"

#include "models/nearest.hpp"
#include "stages/decode.hpp"
#include "stages/detect.hpp"
#include "stages/encode.hpp"
#include "stages/postprocess.hpp"
#include "stages/preprocess.hpp"
#include "stages/segment.hpp"

namespace millrace {

const std::vector<StageEntry>& stage_table() {
  static const std::vector<StageEntry> table{
      stage_entry<Decode>(),  stage_entry<Preprocess>(),  stage_entry<Detect>(),
      stage_entry<Segment>(), stage_entry<Postprocess>(), stage_entry<Encode>(),
  };
  return table;
}

const StageEntry& find_stage(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& entry : stage_table()) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  const std::string near = nearest_name(name, names);
  throw UsageError("'" + std::string(name) + "' is no stage" + (near.empty() ? "" : "; did you mean '" + near + "'?") +
                   " `millrace stages` lists them");
}

}  // namespace millrace
