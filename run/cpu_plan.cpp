#include "run/cpu_plan.hpp"

#include <nlohmann/json.hpp>
#include <optional>

#include "io/results/plan.hpp"
#include "models/engines/cpu_level.hpp"
#include "run/setup.hpp"

namespace millrace {
namespace {

std::optional<CpuLevel> planned_level(const std::string& output_folder) {
  const auto level = planned_setting(output_folder, "cpu_level");
  return level.is_string() ? cpu_level_of(level.get<std::string>()) : std::nullopt;
}

std::string quoted(CpuLevel level) { return "'" + std::string(name_of(level)) + "'"; }

}  // namespace

std::string choose_cpu_level(const Config& config, const Devices& devices) {
  const auto asked = config.device.cpu;
  const auto level = cpu_level_of(asked);
  if (asked != "auto" && !level)
    throw UsageError("device.cpu is '" + asked + "'; it can be auto, avx512, avx2 or sse4.1");
  const bool on_cpu = devices.kind == Devices::Kind::cpu || devices.kind == Devices::Kind::fake;
  if (!on_cpu || config.chain.of(Section::lane).empty()) return {};
  const CpuLevel best = best_level();
  if (level) {
    if (*level <= best) return asked;
    throw PackageError("device.cpu is '" + asked + "', and this machine has " + quoted(best) +
                       " at most; name that, or leave device.cpu out");
  }
  const auto folder = config.output.folder;
  const auto planned = planned_level(folder);
  if (planned && *planned > best) {
    throw PlanMismatch("the plan in '" + folder + "' is for CPUs with " + quoted(*planned) + ", and this machine has " +
                       quoted(best) + " at most, which gives other last bits. Go on where " + quoted(*planned) +
                       " is there, or use a new output folder");
  }
  return std::string(name_of(planned.value_or(best)));
}

}  // namespace millrace
