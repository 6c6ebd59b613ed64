#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "pipeline/gpu_limit.hpp"
#include "pipeline/statistics.hpp"

namespace millrace {

/// The part of a pipeline that held it back between two moments, with the evidence.
struct Verdict {
  enum class Kind {
    too_short,  ///< nothing was committed, or little in under a second: too little to find the bottleneck
    input,      ///< the source waited for input (a scan, an open stdin)
    stage,      ///< a stage; it runs on `resource`
    reads,      ///< `read`, which waits for a disk
    writes,     ///< `commit`, which waits for a disk
    memory,     ///< threads waited for memory: the machine swaps, or has to free memory first
    others,     ///< other programs had the cores that the run needed
    cores,      ///< the cores are full; `stage` is the largest part of the busiest resource
    credits,    ///< no part was busy and yet the source had no credits: the gate admits too little
    balanced    ///< no part was busy and the source had credits: waits in several parts add up
  };
  Kind kind = Kind::too_short;
  /// The stage with the highest gain, if one has the highest of all changes. Else the largest part of the busiest
  /// resource, for every kind. Empty if nothing was busy.
  std::string stage;
  std::string resource;                ///< the resource that `stage` runs on
  double utilisation = 0;              ///< of the resource: busy / (wall * servers)
  std::optional<double> no_core;       ///< share of that busy time in which the resource waited for a core
  double starved = 0;                  ///< share of the resource's time in which it had nothing to do
  double mean_queue = 0;               ///< mean number of items that waited before the resource
  double without_credits = 0;          ///< share of the time in which the source had no credits
  double input = 0;                    ///< share of the time that the source spent in next()
  double cores = 0;                    ///< CPU time / (wall * cores)
  std::optional<double> other_cores;   ///< cores that other programs and other guests of the hypervisor took
  double gain_without_others = 0;      ///< as `gain`, if they were gone
  std::string binds_without_others;    ///< the bottleneck in that case: a stage, "cores", "input" or "gate"
  std::optional<double> memory_stall;  ///< share of the time in which some thread of the machine waited for memory
  std::optional<double> disk_stall;    ///< likewise, for a disk
  GpuLimit gpu{};                      ///< of the stage, if a GPU computes it or lanes launch its kernels; else unknown
  std::string runner_up;  ///< stage of the next busiest resource, or "input"; empty if nothing else was busy
  double runner_up_utilisation = 0;
  /// The growth of throughput if `stage` were twice as fast, 0.34 for +34 %: predicted, or else a bound (bounds.hpp).
  double gain = 0;
  std::string then_binds;  ///< the next bottleneck in that case: a stage, "cores", "input" or "gate"
  std::string thin;        ///< why the window says little ("a short run: 14 pictures ..."); empty if it says enough
  std::string sentence;    ///< the whole verdict, for people
};
[[nodiscard]] std::string_view to_string(Verdict::Kind kind);

/// What holds the run back: a stage, "disk reads", "disk writes", "memory", "other programs", "cores", "input" or "gate".
/// Empty if no single part does, or if the run was too short to say.
[[nodiscard]] std::string named(const Verdict& verdict);

/// Gains by change, as WhatIf::predict() reads changes: {"segment x2", 0.34} for +34 %.
using PredictedGains = std::map<std::string, double>;

/// Judges the window between two snapshots of one graph.
/// It is a pure function; the progress line and the final report both use it.
///
/// The bottleneck of a closed queueing network is the resource with the highest utilisation.
/// Time in which a resource waits for a core is no demand of its own, so it does not count for the order of resources.
/// The verdict names the change that could raise throughput most (bounds.hpp): a stage twice as fast, twice the cores,
/// twice the pictures in flight, or no other programs.
/// All this holds for windows of any length. A short window is judged too, and then the sentence says why it says
/// little.
/// The verdict names the same part for any `predicted`. Its gains are the predicted ones, if they are there.
[[nodiscard]] Verdict judge(const Snapshot& from, const Snapshot& to, const PredictedGains& predicted = {});

}  // namespace millrace
