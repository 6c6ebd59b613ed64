#pragma once

#include <string>
#include <string_view>

#include "pipeline/statistics.hpp"

namespace millrace {

/// Which part of a pipeline held it back between two moments, and how that is known.
struct Verdict {
  enum class Kind {
    too_short,  ///< under a second and little came out, or nothing did: what binds cannot be told
    input,      ///< the source waited for input (a scan, an open stdin)
    stage,      ///< a stage, on the resource it runs on
    cores,      ///< the cores are full; `stage` is what used the workers, the lanes or the own threads most
    credits,    ///< nothing was busy, yet the source had no credits: the gate admits too little
    balanced    ///< nothing was busy and the source had credits: waits add up, no one part binds
  };
  Kind kind = Kind::too_short;
  std::string stage;       ///< the largest part of the busiest resource, for every kind; empty where nothing was busy
  std::string resource;    ///< it runs on
  double utilisation = 0;  ///< of the resource: busy / (wall * servers)
  double starved = 0;      ///< share of the resource's time that it had nothing to do
  double mean_queue = 0;   ///< items waiting before the resource
  double without_credits = 0;  ///< share of the time that the source had no credits
  double input = 0;            ///< share of the time that the source spent in next()
  double cores = 0;            ///< CPU time / (wall * cores)
  std::string runner_up;       ///< stage of the next busiest resource, or "input"; empty where nothing else was busy
  double runner_up_utilisation = 0;
  double gain = 0;         ///< the most that throughput grows if `stage` were twice as fast, 0.34 for +34 %
  std::string then_binds;  ///< what would hold the run back then
  std::string thin;        ///< why the window says little ("a short run: 14 pictures ..."); empty where it says enough
  std::string sentence;    ///< all of it, for a person
};
[[nodiscard]] std::string_view to_string(Verdict::Kind kind);

/// Judges the window between two snapshots of one graph. Pure; the progress line and the final report both use it.
///
/// The bottleneck of a closed queueing network is the resource with the highest utilisation. The what-if is the
/// asymptotic bound: throughput cannot grow beyond the point where the next resource is always busy. Both hold for
/// windows of any length; a short one is judged as well, and the sentence says what it rests on.
[[nodiscard]] Verdict judge(const Snapshot& from, const Snapshot& to);

}  // namespace millrace
