#pragma once

#include <string>

#include "run/config.hpp"
#include "run/devices.hpp"

namespace millrace {

/// Sets the level (models/engines/cpu_level.hpp) that this run computes at: device.cpu, else the level of the plan in
/// the output folder, else the best of this machine. Leaves it empty where no model runs on a CPU. Throws UsageError
/// for other words, PlanMismatch where this machine has less than the plan, PackageError where it has less than asked.
void use_cpu_level(const Config& config, Devices& devices);

}  // namespace millrace
