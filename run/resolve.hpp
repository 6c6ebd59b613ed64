#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "pipeline/graph_options.hpp"
#include "run/devices.hpp"

namespace millrace {

struct Config;
class Settings;

/// The numbers of a run after the defaults for the machine are filled in.
struct ResolvedConfig {
  int batch_size = 1;
  int team = 1;  ///< threads of a model call; results depend on it, so the plan fixes it
  Precisions precisions;
  GraphOptions graph;
};

/// Throws UsageError unless the devices can have CUDA graphs.
void check_graphs(const Devices& devices);

/// Replaces numbers that are 0 in the config by defaults for `cores` cores and these devices.
/// `planned_team` is the team size of the plan to resume. It applies if the config names no team size.
/// `most_lanes` is the number of lanes for which the memory of the host may be enough.
/// Throws UsageError for numbers that the graph refuses.
ResolvedConfig resolve(const Config& config, int cores, std::optional<int> planned_team, const Devices& devices = {},
                       int most_lanes = std::numeric_limits<int>::max());

/// On a GPU, gives options of stages their defaults for GPUs (OptionVisitor::on_gpu), unless the user set them.
void use_defaults_of(const Devices& devices, Settings& settings);

/// Replaces the option names of the graph in a message by those that users know: admission_items by gate.frames.
std::string in_users_words(std::string message);

}  // namespace millrace
