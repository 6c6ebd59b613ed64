#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "pipeline/graph_options.hpp"
#include "run/devices.hpp"

namespace millrace {

struct Config;
class Settings;

/// The numbers that settings leave to the machine.
struct Numbers {
  int batch_size = 1;
  int team = 1;  ///< threads of one model call; results depend on it, so the plan fixes it
  Precisions precisions;
  GraphOptions graph;
};

/// Fills in what is 0 in the config, for `cores` cores and these devices. `planned_team` is the team size of the plan
/// that is resumed: it is taken unless the user names one. Throws UsageError for numbers the graph cannot work with.
Numbers resolve(const Config& config, int cores, std::optional<int> planned_team, const Devices& devices = {});

/// On a GPU, options of stages that are not set have their default there (OptionVisitor::on_gpu): large calls, in few
/// shapes.
void use_defaults_of(const Devices& devices, Settings& settings);

/// A message of the graph with its options under the names that users know: gate.frames for admission_items.
std::string in_users_words(std::string message);

}  // namespace millrace
