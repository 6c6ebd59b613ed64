#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "pipeline/lane_timeline.hpp"

namespace millrace {

/// What timeline.json says besides the batches. Times are those of the pipeline's clock.
struct TimelineFacts {
  int lanes = 1;
  std::vector<std::string> stages;          ///< of a lane, in their order
  std::vector<std::string> views;           ///< by group
  std::int64_t zero_ns = 0;                 ///< the time that the file calls 0, as resources.csv does
  std::int64_t begun_ns = 0, ended_ns = 0;  ///< the window of the report
};

/// The content of timeline.json. docs/formats_runs.md describes it.
[[nodiscard]] std::string to_json(const LaneTimeline::Kept& kept, const TimelineFacts& facts);

/// Reads what to_json() wrote. Null if the text is damaged, of another version, or has numbers that no run has.
[[nodiscard]] nlohmann::json timeline_from_json(std::string_view text);

}  // namespace millrace
