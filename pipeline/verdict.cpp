#include "pipeline/verdict.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

namespace millrace {
namespace {

constexpr double full = 0.9;               // from here on a resource counts as saturated
constexpr double idle = 0.6;               // below, a resource does not explain the rate by itself
constexpr std::int64_t least_batches = 8;  // batches a window must hold

/// One thing that can bind: a resource, the input, or the cores.
struct Candidate {
  std::string stage;     // its largest part
  std::string resource;  // empty for the input and the cores
  const ResourceReading* reading = nullptr;
  double utilisation = 0;
  double share = 1;  // of the resource's busy time that `stage` takes
};

std::string percent(double share) { return std::to_string(std::lround(share * 100)) + " %"; }
std::string one_decimal(double value) {
  const auto tenths = std::lround(value * 10);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}
std::string quoted(const std::string& stage) { return "`" + stage + "`"; }

double share_of(const Reading& part, const ResourceReading& resource) {
  return resource.total.busy_ns > 0 ? static_cast<double>(part.busy_ns) / static_cast<double>(resource.total.busy_ns)
                                    : 0;
}

Candidate candidate(const ResourceReading& resource, std::int64_t wall_ns) {
  Candidate it{resource.total.name, resource.total.name, &resource, resource.total.utilisation(wall_ns), 1};
  const auto largest = std::ranges::max_element(resource.parts, {}, &Reading::busy_ns);
  if (largest != resource.parts.end()) {
    it.stage = largest->name;
    it.share = share_of(*largest, resource);
  }
  return it;
}

/// "the lane section was busy 97 % of the time, of that detect 71 %, segment 26 %, preprocess 3 %"
std::string busy_clause(const Candidate& it) {
  const auto servers = it.reading->total.servers;
  std::string text = it.stage == it.resource    ? "it was"
                     : it.resource == "workers" ? "the workers were"
                     : it.resource == "lane"    ? "the lane section was"
                                                : "the " + it.resource + " was";
  text += " busy " + percent(it.utilisation) + " of the time";
  if (servers > 1) text += " (" + std::to_string(servers) + " at a time)";
  auto parts = it.reading->parts;
  if (parts.size() < 2) return text;
  std::ranges::sort(parts, std::ranges::greater{}, &Reading::busy_ns);
  text += ", of that ";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += (i > 0 ? ", " : "") + parts[i].name + " " + percent(share_of(parts[i], *it.reading));
  }
  return text;
}

/// Fills in what would happen if `it.stage` were twice as fast.
void what_if(Verdict& verdict, const Candidate& it, const std::vector<Candidate>& others, const Snapshot& window) {
  const auto wall_ns = static_cast<double>(window.time_ns);
  const double saved_ns = it.utilisation * it.share / 2 * it.reading->total.servers * wall_ns;
  double busiest = it.utilisation * (1 - it.share / 2);
  verdict.then_binds = it.stage;
  for (const auto& other : others) {
    if (other.utilisation > busiest) {
      busiest = other.utilisation;
      verdict.then_binds = other.stage;
    }
  }
  // At best all the time saved was spent computing.
  const double cores = window.cores > 0 ? std::max(verdict.cores - saved_ns / (wall_ns * window.cores), 0.0) : 0;
  if (cores > busiest) {
    busiest = cores;
    verdict.then_binds = "cores";
  }
  verdict.gain = std::clamp(1 / std::max(busiest, 0.5) - 1, 0.0, 1.0);
}

std::string what_if_clause(const Verdict& verdict) {
  const auto start = "If " + quoted(verdict.stage) + " were twice as fast, the run would gain at most " +
                     percent(verdict.gain) + ": then ";
  if (verdict.then_binds == verdict.stage) return start + "it still binds.";
  if (verdict.then_binds == "cores") return start + "the cores bind.";
  if (verdict.then_binds == "input") return start + "the input binds.";
  return start + quoted(verdict.then_binds) + " binds.";
}

std::string runner_up_clause(const Verdict& verdict) {
  if (verdict.runner_up.empty()) return "";
  const auto name = verdict.runner_up == "input" ? std::string("the input") : quoted(verdict.runner_up);
  return " Runner-up: " + name + " at " + percent(verdict.runner_up_utilisation) + ".";
}

std::string evidence(const Verdict& verdict, const Candidate& it) {
  return busy_clause(it) + ", starved " + percent(verdict.starved) + ", with " + one_decimal(verdict.mean_queue) +
         " waiting before it; the source had no credits " + percent(verdict.without_credits) + " of the time.";
}

void describe(Verdict& verdict, const Candidate& it, const Snapshot& window) {
  switch (verdict.kind) {
    case Verdict::Kind::too_short:
      verdict.sentence = "Too short to judge: " + std::to_string(window.committed) + " frames came out, and filling " +
                         "and draining the pipeline takes " + std::to_string(window.admission_items) + ".";
      break;
    case Verdict::Kind::input:
      verdict.sentence = "The input holds the run back: the source waited for it " + percent(verdict.input) +
                         " of the time." + runner_up_clause(verdict);
      break;
    case Verdict::Kind::stage:
      verdict.sentence = quoted(it.stage) + " holds the run back: " + evidence(verdict, it) +
                         runner_up_clause(verdict) + " " + what_if_clause(verdict);
      break;
    case Verdict::Kind::cores:
      verdict.sentence = "The cores hold the run back: " + one_decimal(window.cores) + " cores were " +
                         percent(verdict.cores) + " busy. The busiest stage is " + quoted(it.stage) + ": " +
                         evidence(verdict, it) + runner_up_clause(verdict) + " " + what_if_clause(verdict);
      break;
    case Verdict::Kind::credits: {
      const double for_bytes = window.bytes.mean_queue(window.time_ns);
      verdict.sentence = "The gate holds the run back: the source had no credits " + percent(verdict.without_credits) +
                         " of the time, and yet nothing was busy more than " + percent(verdict.utilisation) + " (" +
                         quoted(it.stage) + "). ";
      verdict.sentence +=
          for_bytes >= 1 ? one_decimal(for_bytes) + " frames waited for bytes: raise byte_budget."
                         : "Raise admission_items, now " + std::to_string(window.admission_items) + ", or read_ahead.";
      break;
    }
    case Verdict::Kind::balanced:
      verdict.sentence = "No part holds the run back by itself: the busiest is " + quoted(it.stage) + " with " +
                         percent(verdict.utilisation) + ", the source had no credits " +
                         percent(verdict.without_credits) + " of the time and waited for input " +
                         percent(verdict.input) + "." + runner_up_clause(verdict);
      break;
  }
}

/// Whether the window says something: not only the filling of the pipeline, and more than a few items.
bool long_enough(const Snapshot& from, const Snapshot& window) {
  const auto commit = std::ranges::find(window.resources, "commit", [](const auto& it) { return it.total.name; });
  if (window.time_ns <= 0 || commit == window.resources.end()) return false;
  const bool with_fill = from.committed == 0;
  return commit->total.items >= least_batches && (!with_fill || window.committed >= window.admission_items);
}

}  // namespace

Verdict judge(const Snapshot& from, const Snapshot& to) {
  const auto window = to - from;
  const auto wall_ns = window.time_ns;
  Verdict verdict;
  verdict.input = window.input.utilisation(wall_ns);
  verdict.without_credits = window.without_credits.utilisation(wall_ns);
  if (wall_ns > 0 && window.cores > 0) {
    verdict.cores = static_cast<double>(window.cpu_ns) / (static_cast<double>(wall_ns) * window.cores);
  }
  if (!long_enough(from, window)) {
    describe(verdict, {}, window);
    return verdict;
  }

  std::vector<Candidate> ranked;
  for (const auto& resource : window.resources) ranked.push_back(candidate(resource, wall_ns));
  ranked.push_back({"input", "", nullptr, verdict.input, 1});
  std::ranges::sort(ranked, std::ranges::greater{}, &Candidate::utilisation);

  // Where the cores are full, a slow input is slow because of them.
  const bool waits_for_input =
      ranked.front().reading == nullptr && ranked.front().utilisation >= 0.5 && verdict.cores < full;
  const auto chosen = waits_for_input
                          ? ranked.begin()
                          : std::ranges::find_if(ranked, [](const Candidate& it) { return it.reading != nullptr; });
  const Candidate binds = *chosen;
  ranked.erase(chosen);
  verdict.stage = waits_for_input ? "" : binds.stage;
  verdict.resource = binds.resource;
  verdict.utilisation = binds.utilisation;
  verdict.runner_up = ranked.front().stage;
  verdict.runner_up_utilisation = ranked.front().utilisation;
  if (binds.reading != nullptr) {
    verdict.starved = binds.reading->total.starved(wall_ns);
    verdict.mean_queue = binds.reading->total.mean_queue(wall_ns);
    what_if(verdict, binds, ranked, window);
  }

  if (verdict.cores >= full) {
    verdict.kind = Verdict::Kind::cores;
  } else if (waits_for_input) {
    verdict.kind = Verdict::Kind::input;
  } else if (binds.utilisation >= idle) {
    verdict.kind = Verdict::Kind::stage;
  } else {
    verdict.kind = verdict.without_credits >= 0.5 ? Verdict::Kind::credits : Verdict::Kind::balanced;
  }
  describe(verdict, binds, window);
  return verdict;
}

}  // namespace millrace
