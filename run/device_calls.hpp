#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "pipeline/statistics.hpp"
#include "stages/chain.hpp"

namespace millrace {

/// The copies and waits of the lanes on their devices during a run, and the most that the stages declare.
struct DeviceCalls {
  std::int64_t pictures = 0, batches = 0;  ///< that came to the lanes
  DeviceCounts made;
  DeviceCounts declared;  ///< without overflows, which no stage can foresee
  struct OfStage {
    std::string name;
    CountsByCall made;
    DeviceCounts declared;
  };
  std::vector<OfStage> stages{};  ///< in the order of the chain; stages that share a counter may each use all of it
};

/// Nothing if no batch came to a lane. `window` is the run, `made` are the counts of all lanes in it.
std::optional<DeviceCalls> device_calls(const Chain& chain, const Snapshot& window, const Counters& counters,
                                        const DeviceCounts& made, const std::map<std::string, CountsByCall>& by_stage);

/// A sentence for the report if more was made than declared, with the stages that did it and their calls: the lines of
/// code. Empty if not; overflows do not count.
std::string excess_of(const DeviceCalls& calls);

}  // namespace millrace
