#include "run/resolve.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "run/config.hpp"
#include "run/settings.hpp"
#include "stages/registry.hpp"

namespace millrace {
namespace {

// Lanes with one thread each use cores better than one lane with a team: a team waits for its slowest thread, and much
// work between its products has one thread. But each lane has memory of its own, so many cores are shared by few lanes.
constexpr int lanes_of_a_cpu = 8;
constexpr int largest_team = 8;    // with more threads a team gains little
constexpr int lanes_of_a_gpu = 3;  // one uploads, one computes, one is processed by the host
constexpr int pictures_on_gpu = 16;
// The whole team of a lane stalls if a worker takes a core from one of its threads, and so does a GPU if a lane waits.
constexpr int worker_nice = 10;

/// Options of the graph, and their names for users.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> names{{{"admission_items", "gate.frames"},
                                                                              {"byte_budget", "gate.memory"},
                                                                              {"slab_bytes", "gate.slab"},
                                                                              {"read_ahead", "read.ahead"},
                                                                              {"read_threads", "read.threads"},
                                                                              {"max_batch", "batch.size"},
                                                                              {"lanes", "threads.lanes"},
                                                                              {"workers", "threads.workers"}}};

}  // namespace

void check_graphs(const Devices& devices) {
  if (!devices.lanes_wait_for_gpu())
    throw UsageError("models.graphs needs a GPU, because a CPU has no CUDA graphs; add --device cuda, or leave it out");
}

ResolvedConfig resolve(const Config& config, int cores, std::optional<int> planned_team, const Devices& devices,
                       int most_lanes) {
  const bool on_gpu = devices.lanes_wait_for_gpu();
  if (config.models.graphs) check_graphs(devices);
  const ThreadOptions& threads = config.threads;
  const GateOptions& gate = config.gate;
  const ReadOptions& read = config.read;
  ResolvedConfig resolved;
  const int batch_size = config.batch.size;
  resolved.batch_size = batch_size > 0 ? batch_size : on_gpu ? pictures_on_gpu : 1;
  const int shared_by = threads.lanes > 0 ? threads.lanes : std::min(lanes_of_a_cpu, most_lanes);
  const int usual_team = on_gpu ? 1 : std::clamp(cores / shared_by, 1, largest_team);
  // The size of a team changes the last bits of results, so a resumed run keeps that of its plan.
  resolved.team = threads.team > 0 ? threads.team : planned_team.value_or(usual_team);

  resolved.precisions = find_precisions(config.device.precision, devices);

  GraphOptions& graph = resolved.graph;
  graph.max_batch = resolved.batch_size;
  const int usual_lanes = on_gpu ? lanes_of_a_gpu * devices.count()
                                 : std::min(std::max(devices.count(), cores / resolved.team), most_lanes);
  graph.lanes = threads.lanes > 0 ? threads.lanes : usual_lanes;
  // Lanes of a GPU sleep while it works, so workers can use all cores.
  graph.workers = threads.workers > 0 ? threads.workers : on_gpu ? cores : std::max(1, cores / 4);
  // Without a team, workers get their share next to other programs.
  graph.worker_nice = on_gpu || resolved.team > 1 ? worker_nice : 0;
  graph.read_threads = read.threads;
  graph.read_ahead = read.ahead;
  graph.slab_bytes = gate.slab;
  // On a CPU, two batches for each lane, and four that are read, decoded or encoded.
  const int batches = on_gpu ? 6 : 2 * graph.lanes + 4;
  graph.admission_items = gate.frames > 0 ? gate.frames : std::max(16, batches * resolved.batch_size);
  graph.byte_budget =
      gate.memory > 0 ? gate.memory : std::max(std::int64_t{1} << 30, 2 * resolved.batch_size * gate.slab);
  try {
    check(graph);
  } catch (const std::invalid_argument& error) {
    throw UsageError(in_users_words(error.what()));
  }
  return resolved;
}

void use_defaults_of(const Devices& devices, Settings& settings) {
  if (!devices.lanes_wait_for_gpu()) return;
  for (const RecipeStage& stage : settings.stages()) {
    for (const OptionInfo& option : find_stage(stage.stage).options) {
      if (option.on_gpu.empty() || settings.values(stage.name).count(option.name) > 0) continue;
      settings.set(stage.name + "." + option.name, {option.on_gpu}, "GPU");
    }
  }
}

std::string in_users_words(std::string message) {
  for (const auto& [graph_name, user_name] : names) {
    // "lanes" and "workers" are also plain words. They mean the option only at the start of a message.
    const bool plain_word = graph_name.find('_') == std::string_view::npos;
    for (auto at = message.find(graph_name); at != std::string::npos;
         at = message.find(graph_name, at + user_name.size())) {
      if (plain_word && at != 0) break;
      message.replace(at, graph_name.size(), user_name);
    }
  }
  return message;
}

}  // namespace millrace
