#include "pipeline/bounds.hpp"

#include <algorithm>
#include <optional>

namespace millrace {
namespace {

/// A stage of a resource. All values are parts of the window's length, for each server of the resource.
struct Part {
  std::string name;
  double demand = 0;     // busy, with a core where it needed one
  double waiting = 0;    // busy, but without a core
  double cores = 0;      // of all cores, summed over the servers
  double served_s = 0;   // of one item, with a core where it needed one
  double delayed_s = 0;  // of one item, without a core
};

struct Resource {
  std::string name;
  std::vector<Part> parts;
  [[nodiscard]] const Part& largest() const { return *std::ranges::max_element(parts, {}, &Part::demand); }
};

/// The pipeline, as the bounds need it.
struct Load {
  std::vector<Resource> resources;
  double cores = 0;                // that the run uses, as a part of all cores
  double others = 0;               // likewise, that others take
  std::optional<double> scarcity;  // how much threads wait for a core, compared with today; empty: as rivals have it
  double in_flight = 0;            // pictures
  double rate = 0;                 // pictures/s
  double queue_s = 0;              // time that a picture waits for the rest of its batch
};

double ratio(std::int64_t part, double whole) { return whole > 0 ? static_cast<double>(part) / whole : 0; }

/// `reading` is the resource itself, or one of its stages; then `share` scales its busy time.
Part part_of(const Reading& reading, const Reading& total, double share, const Snapshot& window) {
  const auto wall = static_cast<double>(window.time_ns);
  const auto busy_ns = share * static_cast<double>(reading.busy_ns);
  const double no_core = reading.no_core() ? *reading.no_core() : total.no_core().value_or(0);
  Part part{reading.name};
  if (wall <= 0) return part;
  part.waiting = busy_ns * no_core / (wall * total.servers);
  part.demand = busy_ns / (wall * total.servers) - part.waiting;
  // Without core times, a stage may have used a core for all of its busy time.
  const auto core_ns = reading.measured_ns > 0 ? static_cast<double>(reading.core_ns) : busy_ns;
  part.cores = window.cores > 0 ? core_ns / (wall * window.cores) : 0;
  if (reading.items > 0) {
    const double served_s = busy_ns / (1e9 * static_cast<double>(reading.items));
    part.served_s = served_s * (1 - no_core);
    part.delayed_s = served_s * no_core;
  }
  return part;
}

Resource resource_of(const ResourceReading& reading, const Snapshot& window) {
  Resource resource{reading.total.name, {}};
  double in_parts = 0;
  for (const Reading& part : reading.parts) in_parts += static_cast<double>(part.busy_ns);
  // Between its stages, a lane is busy too. So the stages share the busy time of the whole.
  const double share = in_parts > 0 ? static_cast<double>(reading.total.busy_ns) / in_parts : 1;
  for (const Reading& part : reading.parts) resource.parts.push_back(part_of(part, reading.total, share, window));
  if (resource.parts.empty()) resource.parts.push_back(part_of(reading.total, reading.total, 1, window));
  return resource;
}

Load load_of(const Snapshot& window) {
  Load load;
  const auto wall = static_cast<double>(window.time_ns);
  const bool gpu_full = gpu_is_full(window);
  for (const ResourceReading& reading : window.resources) {
    // Lanes that wait for a full GPU are busy too, but the GPU is the limit. With a GPU that is not full, it is none.
    if (reading.total.name == "lane" && gpu_full) continue;
    if (reading.waited_for_by_lanes && !gpu_full) continue;
    load.resources.push_back(resource_of(reading, window));
  }
  load.resources.push_back({"input", {part_of(window.input, window.input, 1, window)}});
  if (wall > 0 && window.cores > 0) {
    load.cores = ratio(window.cpu_ns, wall * window.cores);
    load.others = other_cores(window).value_or(0) / window.cores;
  }
  load.in_flight = static_cast<double>(window.admission_items);
  load.rate = wall > 0 ? static_cast<double>(window.committed) * 1e9 / wall : 0;
  load.queue_s = ratio(window.batch.queued_ns, 1e9 * static_cast<double>(window.committed));
  return load;
}

double cores_of(const Resource& resource) {
  double sum = 0;
  for (const auto& part : resource.parts) sum += part.cores;
  return sum;
}

// The relative wait for a core that rivals use for this part of the time, as in a queue before one server.
// The small number keeps it finite: clocks that disagree can make cores look more than full.
double queue(double busy) { return busy / (1.02 - std::min(busy, 1.0)); }

struct Bound {
  double rate = 1;
  std::string binds;
  std::string resource;  // that binds; empty for cores and gate
};

/// The highest rate of `after`, as a multiple of today's, if cores are as contended today as in `today`.
Bound highest_rate(const Load& today, const Load& after) {
  // Returns what is used most at a rate, as a part of what there is, and its name.
  const auto fullest = [&](double rate) {
    Bound most{0, "", ""};
    double alone_s = after.queue_s;
    for (std::size_t r = 0; r < after.resources.size(); ++r) {
      // A resource waits for the cores that everything else uses.
      const double rivals_today = today.cores - cores_of(today.resources[r]) + today.others;
      const double rivals = rate * (after.cores - cores_of(after.resources[r])) + after.others;
      const double ease = after.scarcity ? *after.scarcity : rivals_today > 0 ? queue(rivals) / queue(rivals_today) : 1;
      double used = 0;
      for (const auto& part : after.resources[r].parts) {
        used += rate * (part.demand + part.waiting * ease);
        if (after.resources[r].name != "input") alone_s += part.served_s + part.delayed_s * ease;
      }
      if (used > most.rate) most = {used, after.resources[r].largest().name, after.resources[r].name};
    }
    const double cores = rate * after.cores;
    if (cores > most.rate) most = {cores, "cores", ""};
    const double in_flight = after.in_flight > 0 ? rate * after.rate * alone_s / after.in_flight : 0;
    if (in_flight > most.rate) most = {in_flight, "gate", ""};
    return most;
  };
  double low = 0, high = 64;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (fullest(middle).rate <= 1 ? low : high) = middle;
  }
  Bound bound = fullest(low);
  bound.rate = low;
  return bound;
}

/// With n runnable threads on c cores, a thread waits n/c - 1 times as long as it computes. Threads count for the part of
/// the time in which they could run: lanes that wait for a GPU want no core.
double scarcity_with_twice_the_cores(const Snapshot& window, double others) {
  double threads = 0;
  // A thread of others gets about the share of a core that the run's own threads of normal priority get.
  double share = 0.01;
  for (const ResourceReading& resource : window.resources) {
    const Reading& it = resource.total;
    const auto runnable_ns = it.on_core_ns + it.no_core_ns;
    const double runnable = ratio(runnable_ns, static_cast<double>(window.time_ns));
    if (it.on_core_ns <= 0 || runnable < 0.05) continue;
    threads += runnable * ratio(it.core_ns, static_cast<double>(it.on_core_ns));
    share = std::max(share, ratio(it.on_core_ns, static_cast<double>(runnable_ns)));
  }
  if (threads <= 0) return 0;
  threads += others / share;
  const double now = threads / window.cores - 1;
  return now <= 0 ? 0 : std::max(threads / (2 * window.cores) - 1, 0.0) / now;
}

}  // namespace

bool gpu_is_full(const Snapshot& window) {
  return std::ranges::any_of(window.resources, [&](const ResourceReading& it) {
    return it.waited_for_by_lanes && it.total.utilisation(window.time_ns) >= saturated;
  });
}

Changes possible_changes(const Snapshot& window) {
  const Load today = load_of(window);
  Changes changes{highest_rate(today, today).rate, {}};
  const auto add = [&](Change change, const Load& after) {
    const Bound bound = highest_rate(today, after);
    change.rate = bound.rate;
    change.then_binds = bound.resource == change.resource && !change.resource.empty() ? change.stage : bound.binds;
    changes.all.push_back(std::move(change));
  };
  for (std::size_t r = 0; r < today.resources.size(); ++r) {
    for (std::size_t p = 0; p < today.resources[r].parts.size(); ++p) {
      Load after = today;
      Part& part = after.resources[r].parts[p];
      part.demand /= 2;
      part.waiting /= 2;
      after.cores = std::max(after.cores - part.cores / 2, 0.0);
      part.cores /= 2;
      part.served_s /= 2;
      part.delayed_s /= 2;
      const bool input = today.resources[r].name == "input";
      add({input ? Change::Kind::input : Change::Kind::stage, part.name, today.resources[r].name, 1, ""}, after);
    }
  }
  if (window.cores > 0) {
    Load after = today;
    for (auto& resource : after.resources) {
      for (auto& part : resource.parts) part.cores /= 2;
    }
    after.cores /= 2;
    after.scarcity = scarcity_with_twice_the_cores(window, today.others * window.cores);
    add({Change::Kind::cores, "", "", 1, ""}, after);
    if (today.others > 0) {
      after = today;
      after.others = 0;
      add({Change::Kind::others, "", "", 1, ""}, after);
    }
  }
  Load after = today;
  after.in_flight *= 2;
  add({Change::Kind::credits, "", "", 1, ""}, after);
  return changes;
}

}  // namespace millrace
