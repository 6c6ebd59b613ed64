#pragma once

#include <string>

#include "run/config.hpp"
#include "run/devices.hpp"

namespace millrace {

/// The level (models/engines/cpu_level.hpp) that this run computes at: what device.cpu names; else the plan's in the
/// output folder, if there is one; else the best of this machine. Empty where models run on no CPU. Throws UsageError
/// for other words, PlanMismatch where this machine has less than the plan, PackageError where it has less than asked.
std::string choose_cpu_level(const Config& config, const Devices& devices);

}  // namespace millrace
