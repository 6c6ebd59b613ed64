#include "run/device_calls.hpp"

#include <algorithm>
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

}  // namespace

std::optional<DeviceCalls> device_calls(const Chain& chain, const Snapshot& window, const Counters& counters,
                                        const DeviceCounts& made) {
  DeviceCalls calls{pictures_of(window), batches_of(window), made, {}};
  if (calls.batches == 0) return std::nullopt;
  std::set<const CounterInfo*> counted;  // two stages can share a counter
  for (const ChainLink& link : chain.links()) {
    const DeviceUse& use = link.info.device;
    calls.declared.uploads += use.uploads * calls.pictures;
    calls.declared.downloads += use.downloads * calls.batches;
    calls.declared.waits += use.waits * calls.batches;
    if (use.downloads_each != nullptr && counted.insert(use.downloads_each).second)
      calls.declared.downloads += counters[*use.downloads_each].count();
    if (use.slabs_in != nullptr && counted.insert(use.slabs_in).second)
      calls.declared.uploads += counters[*use.slabs_in].count();
    if (use.slabs_out != nullptr && counted.insert(use.slabs_out).second) {
      calls.declared.downloads += counters[*use.slabs_out].count();
      calls.declared.waits += counters[*use.slabs_out].count();
    }
  }
  return calls;
}

std::string excess_of(const DeviceCalls& calls) {
  const DeviceCounts& made = calls.made;
  std::string text;
  const auto compare = [&](const char* what, std::int64_t count, std::int64_t declared) {
    if (count <= declared) return;
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what + " instead of at most " +
            std::to_string(declared);
  };
  compare("uploads", made.uploads, calls.declared.uploads);
  compare("downloads", made.downloads - made.overflows, calls.declared.downloads);
  compare("waits", made.waits - made.overflows, calls.declared.waits);
  if (text.empty()) return text;
  return "the lanes copied or waited more often than their stages declare: " + text + " in " +
         count_of(calls.batches, "batch", "batches") + "; docs/tracing.md shows how to find the cause";
}

}  // namespace millrace
