#include "pipeline/verdict.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.hpp"
#include "pipeline/bounds.hpp"
#include "pipeline/gpu_limit.hpp"

namespace millrace {
namespace {

constexpr double idle = 0.6;  // a resource less busy than this does not explain the rate by itself
// In a machine that lacks memory, threads stall for most of the time. Stalls of a few percent come from reading files.
constexpr double thrashing = 0.3;
// Fewer cores are the daemons of a system, or errors of clocks that count in ticks of 10 ms.
constexpr double min_other_cores = 0.05;
// With fewer of its cores busy, a run does not lack cores: threads that wait for one wait for the same few.
constexpr double busy_cores = 0.5;
constexpr double launching_lanes = 0.3;  // share of the lanes' time
constexpr double equal = 1.005;          // bounds that differ by less are equal
constexpr std::int64_t min_batches = 8;  // with fewer batches, one slow batch would decide the verdict
// In less time, starting and ending take as long as the work that is judged.
constexpr std::int64_t min_wall_ns = 1'000'000'000;

// A possible bottleneck: a resource, the input or the cores.
struct Candidate {
  std::string stage;     // its largest part
  std::string resource;  // empty for the input and the cores
  const ResourceReading* reading = nullptr;
  double utilisation = 0;
  double own_demand = 0;  // `utilisation` without the time of waiting for a core
};

std::string percent(double share) { return std::to_string(std::lround(share * 100)) + " %"; }
std::string one_decimal(double value) {
  const auto tenths = std::lround(value * 10);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}
std::string quoted(const std::string& stage) { return "`" + stage + "`"; }
std::string pictures(std::int64_t count) { return count_of(count, "picture"); }

double share_of(const Reading& part, const ResourceReading& resource) {
  return resource.total.busy_ns > 0 ? static_cast<double>(part.busy_ns) / static_cast<double>(resource.total.busy_ns)
                                    : 0;
}

Candidate candidate(const ResourceReading& resource, std::int64_t wall_ns) {
  Candidate it{resource.total.name, resource.total.name, &resource, resource.total.utilisation(wall_ns), 0};
  it.own_demand = it.utilisation * (1 - resource.total.no_core().value_or(0));
  const auto largest = std::ranges::max_element(resource.parts, {}, &Reading::busy_ns);
  if (largest != resource.parts.end()) it.stage = largest->name;
  return it;
}

std::string resource_name(const Candidate& it) {
  return it.resource == "workers" ? "the workers" : it.resource == "lane" ? "the lane section" : "the " + it.resource;
}

// Names the candidate that a utilisation belongs to: "`commit`", "the workers (mostly `decode`)", "the input".
// Only the input has no reading.
std::string owner(const Candidate& it) {
  if (it.reading == nullptr) return "the " + it.stage;
  return it.stage == it.resource ? quoted(it.stage) : resource_name(it) + " (mostly " + quoted(it.stage) + ")";
}

/// "the lane section was busy 97 % of the time, 3 at a time (of that time: detect 71 %, segment 26 %, preprocess 3 %)"
std::string busy_clause(const Candidate& it) {
  const auto servers = it.reading->total.servers;
  std::string text = it.stage == it.resource ? "it" : resource_name(it);
  text += text.ends_with('s') ? " were" : " was";
  // Kernels of different lanes run at the same time.
  text += it.reading->waited_for_by_lanes && it.utilisation > 1
              ? " busy all the time: one after another, " + std::string(it.reading->copies ? "they" : "its kernels") +
                    " would take " + percent(it.utilisation) + " of it"
              : " busy " + percent(it.utilisation) + " of the time";
  if (servers > 1) text += ", " + std::to_string(servers) + " at a time";
  auto parts = it.reading->parts;
  if (parts.size() < 2) return text;
  std::ranges::sort(parts, std::ranges::greater{}, &Reading::busy_ns);
  // The largest part, and others that do not round to 0 %.
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double share = share_of(parts[i], *it.reading);
    if (i == 0 || share >= 0.005) text += (i > 0 ? ", " : " (of that time: ") + parts[i].name + " " + percent(share);
  }
  return text + ")";
}

std::string limit_clause(const std::string& binds) {
  if (binds == "cores") return ": then the cores are the limit.";
  if (binds == "input" || binds == "gate") return ": then the " + binds + " is the limit.";
  return ": then " + quoted(binds) + " is the limit.";
}

/// Which gains of a verdict are predicted. The other ones are bounds.
struct Predicted {
  bool stage = false;
  bool others = false;
};

/// "the run would gain about 34 %", or "... at most 34 %" for a bound
std::string gain_clause(double gain, bool predicted) {
  return "the run would gain " + std::string(predicted ? "about " : "at most ") + percent(gain);
}

std::string what_if_clause(const Verdict& verdict, bool predicted) {
  const auto start = "If " + quoted(verdict.stage) + " were twice as fast, " + gain_clause(verdict.gain, predicted);
  if (verdict.then_binds == verdict.stage) return start + ", and it would still be the slowest.";
  return start + limit_clause(verdict.then_binds);
}

/// "they took 1.0 of 2.0 cores"
std::string took_clause(const Verdict& verdict, const Snapshot& window) {
  return " took " + one_decimal(verdict.other_cores.value_or(0)) + " of " + one_decimal(window.cores) + " cores";
}

/// "4.0 cores were 98 % busy", or "the run used 1.6 of 4.0 cores, and other programs 2.3"
std::string cores_clause(const Verdict& verdict, const Snapshot& window) {
  if (verdict.other_cores.value_or(0) < min_other_cores)
    return one_decimal(window.cores) + " cores were " + percent(verdict.cores) + " busy";
  return "the run used " + one_decimal(verdict.cores * window.cores) + " of " + one_decimal(window.cores) +
         " cores, and other programs " + one_decimal(*verdict.other_cores);
}

// For sentences that name something else, if others took enough to matter.
std::string others_clause(const Verdict& verdict, const Snapshot& window, bool predicted) {
  if (verdict.gain_without_others < 0.05) return "";
  return " Other programs" + took_clause(verdict, window) + ": without them, " +
         gain_clause(verdict.gain_without_others, predicted) + ".";
}

std::string runner_up_clause(const Candidate& next) {
  if (next.stage.empty()) return "";
  return " Runner-up: " + owner(next) + " at " + percent(next.utilisation) + ".";
}

// For sentences that have not named the busiest stage yet.
std::string busiest_clause(const Candidate& it, const Candidate& next) {
  if (it.stage.empty()) return "";
  std::string text = " Busiest: " + owner(it) + " with " + percent(it.utilisation);
  if (!next.stage.empty()) text += ", then " + owner(next) + " with " + percent(next.utilisation);
  return text + ".";
}

/// What about the GPU makes the stage slow, and what helps.
std::string gpu_clause(const GpuLimit& gpu) {
  const std::string launches =
      gpu.launch < 1 ? "launching kernels takes " + percent(gpu.launch) + " of the time that they run."
                     : "launching kernels takes " + one_decimal(gpu.launch) + " times as long as they run.";
  switch (gpu.kind) {
    case GpuLimit::Kind::unknown:
      break;
    case GpuLimit::Kind::launch_bound:
      return " The GPU is launch-bound: " + launches +
             " Compiled models and larger batches need fewer launches; more lanes launch at the same time.";
    case GpuLimit::Kind::compute_bound:
      return " The GPU is compute-bound: " + launches;
    case GpuLimit::Kind::throttled:
      return " The GPU is throttled: " +
             (gpu.heat.value_or(0) >= gpu.power.value_or(0)
                  ? "heat lowered its clock " + percent(*gpu.heat) + " of the time. Cool it better."
                  : "its power limit lowered its clock " + percent(*gpu.power) + " of the time.");
  }
  return "";
}

std::string evidence(const Verdict& verdict, const Candidate& it) {
  // The reading of the GPUs is a sum of call times, without queue and starvation.
  if (it.reading->waited_for_by_lanes) {
    return busy_clause(it) + ". These are times of " + (it.reading->copies ? "copies" : "kernels") +
           " alone, and the lanes wait for them. The source had no credits " + percent(verdict.without_credits) +
           " of the time.";
  }
  return busy_clause(it) + ", and starved " + percent(verdict.starved) + ", with " + one_decimal(verdict.mean_queue) +
         " " + std::string(to_string(it.reading->total.unit)) + " waiting before it; the source had no credits " +
         percent(verdict.without_credits) + " of the time.";
}

/// The option that kept the source waiting longest.
std::string gate_clause(const Snapshot& window) {
  const CreditWaits& waits = window.credit_waits;
  if (waits.bytes_ns > std::max(waits.frames_ns, waits.read_ahead_ns)) {
    return "Mostly, pictures waited for bytes (" + one_decimal(window.bytes.mean_queue(window.time_ns)) +
           " on average): raise byte_budget.";
  }
  if (waits.read_ahead_ns > waits.frames_ns)
    return "Mostly, the maximum number of pictures was being read: raise read_ahead.";
  return "Mostly, the maximum number of pictures was in the pipeline: raise admission_items, now " +
         std::to_string(window.admission_items) + ".";
}

/// The change with the highest bound; among equals, the first of these: no other programs, a stage, more cores.
/// The input has a rule of its own.
const Change* best_of(const std::vector<Change>& changes, bool others, bool credits) {
  const Change* best = nullptr;
  for (const auto kind : {Change::Kind::others, Change::Kind::stage, Change::Kind::cores, Change::Kind::credits}) {
    if ((kind == Change::Kind::others && !others) || (kind == Change::Kind::credits && !credits)) continue;
    for (const Change& change : changes) {
      if (change.kind == kind && (best == nullptr || change.rate > best->rate * equal)) best = &change;
    }
  }
  return best;
}

/// `all_cores` is the part of the cores that the run and other programs used; `core_times`: the system provides them.
Verdict::Kind kind_of(const Change* best, double unchanged, const Verdict& verdict, double all_cores, bool core_times) {
  // Without core times, nobody knows whether stages on full cores waited for them.
  const bool full_cores = verdict.cores >= saturated;
  if (best == nullptr || best->rate <= unchanged * helps || (full_cores && !core_times))
    return full_cores ? Verdict::Kind::cores : Verdict::Kind::stage;
  switch (best->kind) {
    case Change::Kind::others:
      return Verdict::Kind::others;
    case Change::Kind::cores:
      if (all_cores >= busy_cores) return Verdict::Kind::cores;
      break;
    case Change::Kind::credits:
      return Verdict::Kind::credits;
    case Change::Kind::stage:
    case Change::Kind::input:
      break;
  }
  return Verdict::Kind::stage;
}

std::optional<double> share_of_time(const std::optional<std::int64_t>& part_ns, std::int64_t wall_ns) {
  if (!part_ns || wall_ns <= 0) return std::nullopt;
  return static_cast<double>(*part_ns) / static_cast<double>(wall_ns);
}

// These two stages use files and little else. A network file system can be slow without a stall of the disks.
bool waits_for_disk(const Verdict& verdict, const Candidate& it) {
  if (it.reading == nullptr || (it.stage != "read" && it.stage != "commit")) return false;
  const Reading& reading = it.reading->total;
  const double computed = reading.on_core().value_or(0) + reading.no_core().value_or(0);
  return computed < 0.5 && verdict.disk_stall.value_or(0) >= slow_disk_stall;
}

/// "3 pictures came out in 0.4 s"
std::string came_out(const Snapshot& window) {
  const auto ms = window.time_ns / 1'000'000;
  const std::string time =
      ms < 1000 ? std::to_string(ms) + " ms" : one_decimal(static_cast<double>(window.time_ns) / 1e9) + " s";
  return (window.committed > 0 ? pictures(window.committed) : std::string("nothing")) + " came out in " + time;
}

void describe(Verdict& verdict, const Candidate& it, const Candidate& next, const Snapshot& window,
              const Predicted& predicted) {
  const std::string colon = verdict.thin.empty() ? ": " : " (" + verdict.thin + "): ";
  switch (verdict.kind) {
    case Verdict::Kind::too_short:
      verdict.sentence = "Too short to judge: " + came_out(window) + "." + busiest_clause(it, next);
      break;
    case Verdict::Kind::input:
      verdict.sentence = "The input holds the run back" + colon + "the source waited for it " + percent(verdict.input) +
                         " of the time." + busiest_clause(it, next);
      break;
    case Verdict::Kind::stage:
      verdict.sentence = quoted(it.stage) + " holds the run back" + colon + evidence(verdict, it) +
                         gpu_clause(verdict.gpu) + runner_up_clause(next) + " " +
                         what_if_clause(verdict, predicted.stage) + others_clause(verdict, window, predicted.others);
      break;
    case Verdict::Kind::reads:
    case Verdict::Kind::writes:
      verdict.sentence = std::string(verdict.kind == Verdict::Kind::reads ? "Disk reads hold" : "Disk writes hold") +
                         " the run back" + colon + "threads of this machine waited for a disk " +
                         percent(*verdict.disk_stall) + " of the time. The busiest stage is " + quoted(it.stage) +
                         ": " + evidence(verdict, it) + runner_up_clause(next) + " " +
                         what_if_clause(verdict, predicted.stage);
      break;
    case Verdict::Kind::memory:
      verdict.sentence = "Memory holds the run back" + colon + "threads of this machine waited for it " +
                         percent(*verdict.memory_stall) + " of the time, because it swaps or has to free memory. " +
                         "Lower gate.memory, or end other programs." + busiest_clause(it, next);
      break;
    case Verdict::Kind::others:
      verdict.sentence = "Other programs hold the run back" + colon + "they" + took_clause(verdict, window) + ", and " +
                         (it.stage == it.resource ? quoted(it.stage) : resource_name(it)) + " waited for a core " +
                         percent(verdict.no_core.value_or(0)) + (it.resource == "workers" ? " of their" : " of its") +
                         " busy time. Without them, " + gain_clause(verdict.gain_without_others, predicted.others) +
                         limit_clause(verdict.binds_without_others);
      break;
    case Verdict::Kind::cores:
      verdict.sentence = "The cores hold the run back" + colon + cores_clause(verdict, window) +
                         ". The busiest stage is " + quoted(it.stage) + ": " + evidence(verdict, it) +
                         runner_up_clause(next) + " " + what_if_clause(verdict, predicted.stage) +
                         others_clause(verdict, window, predicted.others);
      break;
    case Verdict::Kind::credits: {
      verdict.sentence = "The gate holds the run back" + colon + "the source had no credits " +
                         percent(verdict.without_credits) + " of the time. The busiest part is " + owner(it) +
                         " with " + percent(verdict.utilisation) + "." + runner_up_clause(next) + " " +
                         gate_clause(window);
      break;
    }
    case Verdict::Kind::balanced:
      verdict.sentence = "No part holds the run back by itself" + colon + "the busiest is " + owner(it) + " with " +
                         percent(verdict.utilisation) + ". The source had no credits " +
                         percent(verdict.without_credits) + " of the time and waited for input " +
                         percent(verdict.input) + "." + runner_up_clause(next);
      break;
  }
}

// What limits the GPU, if that matters to the stage.
GpuLimit gpu_limit_of(const Candidate& stage, const Snapshot& window) {
  if (stage.reading->copies) return {};
  if (stage.reading->waited_for_by_lanes) return gpu_limit(window, stage.stage);
  if (stage.resource != "lane") return {};
  // Lanes are busy with other work too. Launches explain their time only if they take a good part of it.
  double launches_s = 0;
  const GpuLimit limit = launch_limit(window, launches_s);
  const double busy_s = static_cast<double>(stage.reading->total.busy_ns) / 1e9;
  return launches_s >= launching_lanes * busy_s ? limit : GpuLimit{};
}

// Returns why the window says little: it is mostly filling and draining, or it has only a few batches.
// Empty if it says enough.
std::string thin_because(const Snapshot& from, const Snapshot& window) {
  // `commit` is the only resource that counts batches in every run: lanes and batch stages are optional.
  const auto commit = std::ranges::find(window.resources, "commit", [](const auto& it) { return it.total.name; });
  const auto batches = commit != window.resources.end() ? commit->total.items : 0;
  const bool from_start = from.committed == 0;
  const bool fills = from_start && window.committed < window.admission_items;
  if (batches >= min_batches && !fills) return "";
  std::string text = from_start ? "a short run: " : "a short window: ";
  text += pictures(window.committed) + " came out in " + (fills ? "" : "only ") + count_of(batches, "batch", "batches");
  if (fills) text += ", and filling and draining the pipeline takes " + pictures(window.admission_items);
  return text;
}

}  // namespace

std::string named(const Verdict& verdict) {
  switch (verdict.kind) {
    case Verdict::Kind::stage:
      return verdict.stage;
    case Verdict::Kind::reads:
      return "disk reads";
    case Verdict::Kind::writes:
      return "disk writes";
    case Verdict::Kind::memory:
      return "memory";
    case Verdict::Kind::others:
      return "other programs";
    case Verdict::Kind::cores:
      return "cores";
    case Verdict::Kind::input:
      return "input";
    case Verdict::Kind::credits:
      return "gate";
    case Verdict::Kind::balanced:
    case Verdict::Kind::too_short:
      break;
  }
  return "";
}

std::string_view to_string(Verdict::Kind kind) {
  switch (kind) {
    case Verdict::Kind::too_short:
      return "too_short";
    case Verdict::Kind::input:
      return "input";
    case Verdict::Kind::stage:
      return "stage";
    case Verdict::Kind::reads:
      return "reads";
    case Verdict::Kind::writes:
      return "writes";
    case Verdict::Kind::memory:
      return "memory";
    case Verdict::Kind::others:
      return "others";
    case Verdict::Kind::cores:
      return "cores";
    case Verdict::Kind::credits:
      return "credits";
    case Verdict::Kind::balanced:
      return "balanced";
  }
  return "";
}

Verdict judge(const Snapshot& from, const Snapshot& to, const PredictedGains& predicted) {
  const auto window = with_waits_of_kernels(to - from);
  const auto wall_ns = window.time_ns;
  Verdict verdict;
  verdict.input = window.input.utilisation(wall_ns);
  verdict.without_credits = window.without_credits.utilisation(wall_ns);
  if (wall_ns > 0 && window.cores > 0) {
    verdict.cores = static_cast<double>(window.cpu_ns) / (static_cast<double>(wall_ns) * window.cores);
  }
  verdict.thin = thin_because(from, window);

  verdict.memory_stall = share_of_time(window.machine.memory_stall_ns, wall_ns);
  verdict.disk_stall = share_of_time(window.machine.io_stall_ns, wall_ns);
  verdict.other_cores = other_cores(window);
  const bool others = verdict.other_cores.value_or(0) >= min_other_cores;
  const bool no_credits = verdict.without_credits >= 0.5;

  const Changes changes = possible_changes(window);
  const Change* const best = best_of(changes.all, others, no_credits);
  const bool gpu_full = gpu_is_full(window);
  std::vector<Candidate> ranked;
  for (const auto& resource : window.resources) {
    // Lanes that wait for a full GPU are busy too, but the GPU is the bottleneck.
    const bool waiting = resource.total.name == "lane" && gpu_full;
    if (!waiting || (best != nullptr && best->resource == "lane")) ranked.push_back(candidate(resource, wall_ns));
  }
  // A GPU that is not full is the runner-up at most: no change speeds it up.
  auto first = std::ranges::max_element(ranked, {}, [gpu_full](const Candidate& it) {
    return it.reading->waited_for_by_lanes && !gpu_full ? -1 : it.own_demand;
  });
  double highest = 0;
  for (const Candidate& it : ranked) highest = std::max(highest, it.utilisation);
  // If the cores are full, a slow input is slow because of them.
  const bool waits_for_input = verdict.input >= 0.5 && verdict.input > highest && verdict.cores < saturated;
  if (!waits_for_input && best != nullptr && best->kind == Change::Kind::stage &&
      best->rate > changes.unchanged * helps) {
    first = std::ranges::find(ranked, best->resource, &Candidate::resource);
    first->stage = best->stage;
  }
  Candidate busiest;
  if (first != ranked.end() && first->utilisation > 0) {
    busiest = *first;
    // The others compete for the runner-up.
    ranked.erase(first);
    verdict.stage = busiest.stage;
    verdict.resource = busiest.resource;
    verdict.utilisation = busiest.utilisation;
    verdict.no_core = busiest.reading->total.no_core();
    verdict.starved = busiest.reading->total.starved(wall_ns);
    verdict.mean_queue = busiest.reading->total.mean_queue(wall_ns);
  }
  double gain_with_credits = 0;
  for (const Change& change : changes.all) {
    if (change.kind == Change::Kind::stage && change.stage == busiest.stage && change.resource == busiest.resource) {
      verdict.gain = std::clamp(change.rate - 1, 0.0, 1.0);  // one stage twice as fast at most doubles the rate
      verdict.then_binds = change.then_binds;
    } else if (change.kind == Change::Kind::others && others) {
      // Compared with the bound of today: what keeps a run below it has nothing to do with others.
      verdict.gain_without_others = std::max(change.rate / changes.unchanged - 1, 0.0);
      verdict.binds_without_others = change.then_binds;
    } else if (change.kind == Change::Kind::credits) {
      gain_with_credits = std::max(change.rate / changes.unchanged - 1, 0.0);
    }
  }
  Candidate next;
  const auto second = std::ranges::max_element(ranked, {}, &Candidate::own_demand);
  if (second != ranked.end() && second->utilisation > 0) next = *second;
  // An input above the busiest resource is no runner-up.
  // It is the bottleneck, or it is slow because the cores are full.
  if (verdict.input > next.utilisation && verdict.input <= busiest.utilisation)
    next = {"input", "", nullptr, verdict.input, verdict.input};
  verdict.runner_up = next.stage;
  verdict.runner_up_utilisation = next.utilisation;

  // A source that waits is evidence enough. For every other verdict, at least one frame must have come out.
  const bool known = waits_for_input || (window.committed > 0 && busiest.reading != nullptr);
  if (!known || (!verdict.thin.empty() && wall_ns < min_wall_ns)) {
    verdict.kind = Verdict::Kind::too_short;
  } else if (verdict.memory_stall.value_or(0) >= thrashing) {
    verdict.kind = Verdict::Kind::memory;
  } else if (waits_for_input) {
    verdict.kind = Verdict::Kind::input;
  } else if (highest < idle && verdict.cores < saturated) {
    // Others can also make each picture slow, so that the pictures in flight are too few.
    verdict.kind = !no_credits                                       ? Verdict::Kind::balanced
                   : verdict.gain_without_others > gain_with_credits ? Verdict::Kind::others
                                                                     : Verdict::Kind::credits;
  } else {
    const double others_share = window.cores > 0 ? verdict.other_cores.value_or(0) / window.cores : 0;
    const bool core_times =
        std::ranges::any_of(window.resources, [](const auto& it) { return it.total.no_core().has_value(); });
    verdict.kind = kind_of(best, changes.unchanged, verdict, verdict.cores + others_share, core_times);
    if (verdict.kind == Verdict::Kind::stage && waits_for_disk(verdict, busiest))
      verdict.kind = busiest.stage == "read" ? Verdict::Kind::reads : Verdict::Kind::writes;
  }
  if (verdict.kind == Verdict::Kind::stage) verdict.gpu = gpu_limit_of(busiest, window);
  const auto replace = [&predicted](double& gain, const std::string& change) {
    const auto found = predicted.find(change);
    if (found == predicted.end()) return false;
    gain = std::max(found->second, 0.0);
    return true;
  };
  const Predicted used{replace(verdict.gain, verdict.stage + " x2"),
                       others && replace(verdict.gain_without_others, "others=0")};
  describe(verdict, busiest, next, window, used);
  return verdict;
}

}  // namespace millrace
