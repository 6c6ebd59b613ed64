#include "apps/resolve.hpp"

#include <algorithm>
#include <stdexcept>

#include "apps/run_options.hpp"

namespace millrace {
namespace {

constexpr int cores_of_a_lane = 8;  // beyond that a team gains little: ARCHITECTURE of lanes in docs/architecture.md
constexpr int worker_nice = 10;     // the lane's team stalls as a whole when one member waits for a core

}  // namespace

Numbers resolve(const Settings& settings, int cores, std::optional<int> planned_team) {
  const auto threads = settings.parse<ThreadOptions>();
  const auto gate = settings.parse<GateOptions>();
  const auto read = settings.parse<ReadOptions>();
  Numbers numbers;
  numbers.batch_size = std::max(1, settings.parse<BatchOptions>().size);
  numbers.team = threads.team > 0 ? threads.team : planned_team.value_or(std::min(cores, cores_of_a_lane));

  GraphOptions& graph = numbers.graph;
  graph.max_batch = numbers.batch_size;
  graph.lanes = threads.lanes > 0 ? threads.lanes : std::max(1, cores / cores_of_a_lane);
  graph.workers = threads.workers > 0 ? threads.workers : std::max(1, cores / 4);
  graph.worker_nice = worker_nice;
  graph.read_threads = read.threads;
  graph.read_ahead = read.ahead;
  graph.slab_bytes = gate.slab;
  graph.admission_items = gate.frames > 0 ? gate.frames : std::max(16, 6 * numbers.batch_size);
  graph.byte_budget =
      gate.memory > 0 ? gate.memory : std::max(std::int64_t{1} << 30, 2 * numbers.batch_size * gate.slab);
  try {
    check(graph);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  return numbers;
}

}  // namespace millrace
