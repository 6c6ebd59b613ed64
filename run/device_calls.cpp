#include "run/device_calls.hpp"

#include <functional>
#include <set>

#include "base/text.hpp"

namespace millrace {
namespace {

/// Pictures that came to the lanes: those that the last stage before them served without a failure.
std::int64_t pictures_of(const Snapshot& window) {
  std::int64_t pictures = 0;
  for (const ResourceReading& resource : window.resources) {
    if (resource.total.name == "read") pictures = resource.total.items - resource.total.failed;
    for (const Reading& part : resource.parts) {
      if (part.unit == Unit::frames) pictures = part.items - part.failed;
    }
  }
  return pictures;
}

/// A batch whose pictures have all failed comes to no stage of the lane, so the first stage counts the batches.
std::int64_t batches_of(const Snapshot& window) {
  for (const ResourceReading& resource : window.resources) {
    if (resource.in_turn && !resource.parts.empty()) return resource.parts.front().items;
  }
  return 0;
}

/// What a stage may make in a run, of its fixed copies and of those that counters count.
DeviceCounts declared_by(const DeviceUse& use, const DeviceCalls& calls, const Counters& counters,
                         const std::function<bool(const CounterInfo*)>& counts) {
  DeviceCounts most{use.uploads * calls.pictures, use.downloads * calls.batches, use.waits * calls.batches, 0};
  if (use.downloads_each != nullptr && counts(use.downloads_each))
    most.downloads += counters[*use.downloads_each].count();
  if (use.slabs_in != nullptr && counts(use.slabs_in)) most.uploads += counters[*use.slabs_in].count();
  if (use.slabs_out != nullptr && counts(use.slabs_out)) {
    most.downloads += counters[*use.slabs_out].count();
    most.waits += counters[*use.slabs_out].count();
  }
  return most;
}

/// "23 waits and 2 after overflows instead of at most 20", for each kind that exceeds, and who made them if `calls` says
/// it: " (18 at detect.cpp:159, 7 at embed.cpp:145)". Empty if none exceeds.
std::string compared(const DeviceCounts& made, const DeviceCounts& declared, const CountsByCall& calls = {}) {
  std::string text;
  const auto compare = [&](const char* what, std::int64_t DeviceCounts::*kind, std::int64_t most) {
    // An upload does not follow an overflow.
    const std::int64_t after_overflows = kind == &DeviceCounts::uploads ? 0 : made.overflows;
    const std::int64_t count = made.*kind - after_overflows;
    if (count <= most) return;
    std::string places;
    for (const auto& [place, counts] : calls) {
      if (counts.*kind > 0) places += (places.empty() ? " (" : ", ") + std::to_string(counts.*kind) + " at " + place;
    }
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
    if (after_overflows > 0) text += " and " + std::to_string(after_overflows) + " after overflows";
    text += " instead of at most " + std::to_string(most) + places + (places.empty() ? "" : ")");
  };
  compare("uploads", &DeviceCounts::uploads, declared.uploads);
  compare("downloads", &DeviceCounts::downloads, declared.downloads);
  compare("waits", &DeviceCounts::waits, declared.waits);
  return text;
}

DeviceCounts sum_of(const CountsByCall& calls) {
  DeviceCounts sum;
  for (const auto& [place, counts] : calls) sum = sum + counts;
  return sum;
}

}  // namespace

std::optional<DeviceCalls> device_calls(const Chain& chain, const Snapshot& window, const Counters& counters,
                                        const DeviceCounts& made, const std::map<std::string, CountsByCall>& by_stage) {
  DeviceCalls calls{pictures_of(window), batches_of(window), made, {}};
  if (calls.batches == 0) return std::nullopt;
  std::set<const CounterInfo*> counted;  // two stages can share a counter
  for (const ChainLink& link : chain.links()) {
    const DeviceUse& use = link.info.device;
    const auto first = [&](const CounterInfo* counter) { return counted.insert(counter).second; };
    calls.declared = calls.declared + declared_by(use, calls, counters, first);
    if (const auto found = by_stage.find(link.info.name); found != by_stage.end())
      calls.stages.push_back(
          {link.info.name, found->second, declared_by(use, calls, counters, [](const CounterInfo*) { return true; })});
  }
  return calls;
}

std::string excess_of(const DeviceCalls& calls) {
  const std::string text = compared(calls.made, calls.declared);
  if (text.empty()) return text;
  std::string stages;
  for (const DeviceCalls::OfStage& stage : calls.stages) {
    if (const std::string of_stage = compared(sum_of(stage.made), stage.declared, stage.made); !of_stage.empty())
      stages += "; stage '" + stage.name + "': " + of_stage;
  }
  return "the lanes copied or waited more often than their stages declare: " + text + " in " +
         count_of(calls.batches, "batch", "batches") + stages + "; docs/tracing.md shows how to find the cause";
}

}  // namespace millrace
