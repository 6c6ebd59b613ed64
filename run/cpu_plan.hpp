#pragma once

#include <string>

#include "run/config.hpp"
#include "run/devices.hpp"

namespace millrace {

/// Sets the CPU level of this run (models/engines/cpu_level.hpp), or leaves it empty if no model runs on a CPU.
/// It is device.cpu, else the level of the plan in the output folder, else the highest of this machine: best_level() if a
/// model computes in bf16, otherwise fp32_level().
/// Throws:
/// - UsageError for an unknown level, for any level if no model runs on a CPU, and for bf16 on a CPU without it
/// - PlanMismatch if this machine does not have the level of the plan
/// - PackageError if this machine does not have the level of device.cpu
void use_cpu_level(const Config& config, Devices& devices);

}  // namespace millrace
