#include "pipeline/bounds.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "pipeline/gpu_limit.hpp"

namespace millrace {
namespace {

double ratio(std::int64_t part, double whole) { return whole > 0 ? static_cast<double>(part) / whole : 0; }

/// A stage of a resource. All values are parts of the window's length, for each server of the resource.
struct Part {
  std::string name;
  std::string stage;          // of a part of a GPU: the stage that makes its calls
  double demand = 0;          // busy, with a core where it needed one
  double waiting = 0;         // busy, but without a core
  double cores = 0;           // of all cores, summed over the servers
  bool measured = false;      // whether `cores` is known; else it is the busy time
  double computing = 0;       // the part of `demand` on a core; 0 if not known
  bool launch_bound = false;  // of a part of a GPU
  double served_s = 0;        // of one item, with a core where it needed one
  double delayed_s = 0;       // of one item, without a core
};

struct Resource {
  std::string name;
  std::vector<Part> parts;
  bool gpu = false;
  bool waits_for_gpu = false;  // lanes of a full GPU: they limit the rate only by what they compute
  bool delays = true;          // a picture: its time is not a part of another resource's
  [[nodiscard]] const Part& largest() const { return *std::ranges::max_element(parts, {}, &Part::demand); }
};

/// The threads that share the cores. With n runnable threads on c cores, a thread waits n/c - 1 times as long as it
/// computes. Threads count for the part of the time in which they could run: lanes that wait for a GPU want no core.
class Threads {
 public:
  Threads(const Snapshot& window, double other_cores) : cores_(window.cores) {
    const auto wall = static_cast<double>(window.time_ns);
    // A thread of others gets about the share of a core that the run's own threads of normal priority get.
    double share = 0.01, runnable = 0;
    for (const ResourceReading& resource : window.resources) {
      const Reading& it = resource.total;
      const auto runnable_ns = it.on_core_ns + it.no_core_ns;
      if (it.on_core_ns <= 0 || ratio(runnable_ns, wall) < 0.05) continue;
      const double team = ratio(it.core_ns, static_cast<double>(it.on_core_ns));
      pools_.push_back({ratio(it.on_core_ns, wall), static_cast<double>(it.servers), team});
      runnable += ratio(runnable_ns, wall) * team;
      share = std::max(share, ratio(it.on_core_ns, static_cast<double>(runnable_ns)));
    }
    others_ = other_cores / share;
    wait_today_ = (runnable + others_) / cores_ - 1;
  }

  /// How long threads wait with twice the cores at `rate` times today's rate, as a part of today's time.
  /// Only threads that compute count: a bound must not be low, so it leaves out those that wait for a core.
  [[nodiscard]] double wait_with_twice_the_cores(double rate) const {
    if (pools_.empty() || wait_today_ <= 0) return 0;
    double runnable = others_;
    for (const Pool& pool : pools_) runnable += std::min(rate * pool.on_core, pool.servers) * pool.team;
    return std::max(runnable / (2 * cores_) - 1, 0.0) / wait_today_;
  }

 private:
  struct Pool {
    double on_core = 0;  // servers that compute at a time
    double servers = 0;
    double team = 0;  // threads of each
  };
  double cores_;
  double others_ = 0;
  double wait_today_ = 0;
  std::vector<Pool> pools_;
};

/// The pipeline, as the bounds need it.
struct Load {
  std::vector<Resource> resources;
  double cores = 0;                // that the run uses, as a part of all cores
  double others = 0;               // likewise, that others take
  std::optional<Threads> threads;  // only with twice the cores; else a resource waits for the cores of its rivals
  double in_flight = 0;            // pictures
  double rate = 0;                 // pictures/s
  double queue_s = 0;              // time that a picture waits for the rest of its batch
};

/// `reading` is the resource itself, or one of its stages; then `share` scales its busy time.
Part part_of(const Reading& reading, const Reading& total, double share, const Snapshot& window) {
  const auto wall = static_cast<double>(window.time_ns);
  const auto busy_ns = share * static_cast<double>(reading.busy_ns);
  const double no_core = reading.no_core() ? *reading.no_core() : total.no_core().value_or(0);
  Part part{reading.name, reading.stage};
  if (wall <= 0) return part;
  part.waiting = busy_ns * no_core / (wall * total.servers);
  part.demand = busy_ns / (wall * total.servers) - part.waiting;
  // Without core times, a stage may have used a core for all of its busy time.
  const auto core_ns = reading.measured_ns > 0 ? static_cast<double>(reading.core_ns) : busy_ns;
  part.measured = reading.measured_ns > 0;
  part.launch_bound = is_launch_bound(reading);
  part.computing = busy_ns * reading.on_core().value_or(0) / (wall * total.servers);
  part.cores = window.cores > 0 ? core_ns / (wall * window.cores) : 0;
  if (reading.items > 0) {
    const double served_s = busy_ns / (1e9 * static_cast<double>(reading.items));
    part.served_s = served_s * (1 - no_core);
    part.delayed_s = served_s * no_core;
  }
  return part;
}

Resource resource_of(const ResourceReading& reading, const Snapshot& window) {
  Resource resource{reading.total.name, {}, reading.waited_for_by_lanes};
  double in_parts = 0;
  for (const Reading& part : reading.parts) in_parts += static_cast<double>(part.busy_ns);
  // Between its stages, a lane is busy too. So the stages share the busy time of the whole.
  const double share = in_parts > 0 ? static_cast<double>(reading.total.busy_ns) / in_parts : 1;
  for (const Reading& part : reading.parts) resource.parts.push_back(part_of(part, reading.total, share, window));
  if (resource.parts.empty()) resource.parts.push_back(part_of(reading.total, reading.total, 1, window));
  // Work on a GPU uses no core; without this, its missing core times would count as full use of one.
  if (resource.gpu) {
    for (Part& part : resource.parts) part.cores = 0;
  }
  return resource;
}

Load load_of(const Snapshot& window) {
  Load load;
  const auto wall = static_cast<double>(window.time_ns);
  const bool gpu_full = gpu_is_full(window);
  for (const ResourceReading& reading : window.resources) {
    Resource& resource = load.resources.emplace_back(resource_of(reading, window));
    // The time of a lane includes its calls. Lanes that wait for a full GPU are busy too, but the GPU is the limit.
    if (reading.total.name == "lane" && gpu_full) {
      resource.waits_for_gpu = true;
      resource.delays = false;
      for (Part& part : resource.parts) part.demand = part.computing;
    }
    if (resource.gpu) resource.delays = gpu_full;
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
  std::string stage;     // whose work on a GPU binds
};

/// The highest rate of `after`, as a multiple of today's, if cores are as contended today as in `today`.
Bound highest_rate(const Load& today, const Load& after) {
  // Returns what is used most at a rate, as a part of what there is, and its name.
  const auto fullest = [&](double rate) {
    Bound most{0, "", "", ""};
    double alone_s = after.queue_s;
    for (std::size_t r = 0; r < after.resources.size(); ++r) {
      // A resource waits for the cores that everything else uses.
      const double rivals_today = today.cores - cores_of(today.resources[r]) + today.others;
      const double rivals = rate * (after.cores - cores_of(after.resources[r])) + after.others;
      const double ease = after.threads      ? after.threads->wait_with_twice_the_cores(rate)
                          : rivals_today > 0 ? queue(rivals) / queue(rivals_today)
                                             : 1;
      double used = 0;
      for (const auto& part : after.resources[r].parts) {
        used += rate * (part.demand + part.waiting * ease);
        if (after.resources[r].delays && after.resources[r].name != "input")
          alone_s += part.served_s + part.delayed_s * ease;
      }
      if (used > most.rate) {
        const Part& largest = after.resources[r].largest();
        most = {used, largest.name, after.resources[r].name, largest.stage};
      }
    }
    const double cores = rate * after.cores;
    if (cores > most.rate) most = {cores, "cores", "", ""};
    const double in_flight = after.in_flight > 0 ? rate * after.rate * alone_s / after.in_flight : 0;
    if (in_flight > most.rate) most = {in_flight, "gate", "", ""};
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

/// The part is twice as fast.
void halve(Load& load, Part& part) {
  part.demand /= 2;
  part.waiting /= 2;
  load.cores = std::max(load.cores - part.cores / 2, 0.0);
  part.cores /= 2;
  part.served_s /= 2;
  part.delayed_s /= 2;
}

/// The work of this stage on GPUs takes half the time. So does work that several stages share: a bound must not be low.
void halve_on_gpus(Load& load, const std::string& stage) {
  for (Resource& resource : load.resources) {
    if (!resource.gpu) continue;
    for (Part& part : resource.parts) {
      if (part.stage == stage || part.stage.empty()) halve(load, part);
    }
  }
}

/// Whether a stage that is twice as fast (`after`) gains more than its work on the GPUs alone (`on_gpus`). Then it needs
/// the cores too, at least for launches. Without core times, nobody knows: a lane's wait for the GPU looks like work on a
/// core.
bool needs_cores(const Part& stage, const Load& today, const Load& on_gpus, const Load& after) {
  if (!stage.measured) return false;
  for (const Resource& resource : today.resources) {
    for (const Part& part : resource.parts) {
      if (resource.gpu && part.launch_bound && part.stage == stage.name) return true;
    }
  }
  return highest_rate(today, after).rate > highest_rate(today, on_gpus).rate * helps;
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
    const bool same = bound.resource == change.resource || bound.stage == change.stage;
    change.then_binds = same && !change.stage.empty() ? change.stage : bound.binds;
    changes.all.push_back(std::move(change));
  };
  const bool gpu_full = gpu_is_full(window);
  for (std::size_t r = 0; r < today.resources.size(); ++r) {
    const Resource& resource = today.resources[r];
    if (resource.gpu && !gpu_full) continue;
    for (std::size_t p = 0; p < resource.parts.size(); ++p) {
      Load on_gpus = today;
      // A stage of the lanes that is twice as fast also needs its GPU for half the time.
      if (resource.name == "lane") halve_on_gpus(on_gpus, resource.parts[p].name);
      Load after = on_gpus;
      halve(after, after.resources[r].parts[p]);
      // With a full GPU, its parts are named, unless a stage needs much of the cores too.
      if (resource.waits_for_gpu && !needs_cores(resource.parts[p], today, on_gpus, after)) continue;
      const bool input = resource.name == "input";
      add({input ? Change::Kind::input : Change::Kind::stage, resource.parts[p].name, resource.name, 1, ""}, after);
    }
  }
  if (window.cores > 0) {
    Load after = today;
    for (auto& resource : after.resources) {
      for (auto& part : resource.parts) part.cores /= 2;
    }
    after.cores /= 2;
    after.threads = Threads(window, today.others * window.cores);
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
