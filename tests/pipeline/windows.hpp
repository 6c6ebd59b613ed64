#pragma once

// Hand-made windows between two snapshots, for tests of the verdict.

#include <string>

#include "pipeline/statistics.hpp"

namespace millrace::windows {

inline constexpr std::int64_t second = 1'000'000'000;

inline std::int64_t seconds(double value) { return static_cast<std::int64_t>(value * second); }

inline Reading reading(const std::string& name, int servers, double busy_s, double starved_s = 0, double queued_s = 0) {
  Reading it;
  it.name = name;
  it.servers = servers;
  it.items = 100;
  it.unit = name == "read" || name == "decode" ? Unit::frames : name == "workers" ? Unit::tasks : Unit::batches;
  it.busy_ns = seconds(busy_s);
  it.starved_ns = seconds(starved_s);
  it.queued_ns = seconds(queued_s);
  return it;
}

/// Ten seconds of a pipeline whose bottleneck is the lanes.
inline Snapshot lane_bound() {
  Snapshot it;
  it.time_ns = 10 * second;
  it.planned = 1000;
  it.committed = 990;
  it.input = reading("input", 1, 0.5);
  it.without_credits = reading("gate", 1, 9);
  it.bytes = reading("bytes", 0, 0);
  it.batch = reading("batch", 0, 0);
  it.resources = {{reading("read", 4, 4), {}},
                  {reading("workers", 2, 14.6), {reading("decode", 2, 12.6), reading("encode", 2, 2)}},
                  {reading("lane", 3, 29.1, 0.3, 32),
                   {reading("preprocess", 3, 2.1), reading("detect", 3, 21), reading("segment", 3, 6)}},
                  {reading("commit", 1, 2), {}}};
  it.cpu_ns = seconds(16);
  it.cores = 4;
  it.admission_items = 96;
  return it;
}

/// The first snapshot of a run on a machine that provides all times.
inline Snapshot begun() {
  Snapshot it;
  it.machine = {4, 0, 0, 0, 0, 0, 0};
  return it;
}

/// lane_bound(), with these shares of the busy time spent waiting for a core, and these cores taken by others.
inline Snapshot contended(double lane_without_core, double workers_without_core, double other_cores) {
  auto it = lane_bound();
  const auto split = [](ResourceReading& resource, double no_core) {
    const auto one = [no_core](Reading& reading) {
      reading.measured_ns = reading.busy_ns;
      reading.no_core_ns = static_cast<std::int64_t>(no_core * static_cast<double>(reading.busy_ns));
      // The rest of the time, a device computes.
      reading.on_core_ns = reading.core_ns = (reading.measured_ns - reading.no_core_ns) * 3 / 10;
    };
    one(resource.total);
    for (Reading& part : resource.parts) one(part);
  };
  split(it.resources[1], workers_without_core);
  split(it.resources[2], lane_without_core);
  it.cpu_ns = it.resources[1].total.core_ns + it.resources[2].total.core_ns;
  it.machine.cores = 4;
  it.machine.busy_ns = it.cpu_ns + seconds(10 * other_cores);
  return it;
}

}  // namespace millrace::windows
