#include "run/cpu_plan.hpp"

#include <optional>

#include "base/json.hpp"
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

/// The level of device.cpu, else that of the plan, else `usual`.
CpuLevel chosen_level(const std::string& asked, const std::string& output_folder, CpuLevel usual) {
  const CpuLevel best = best_level();
  if (const auto level = cpu_level_of(asked)) {
    if (*level <= best) return *level;
    throw PackageError("device.cpu is '" + asked + "', but this machine has at most " + quoted(best) +
                       "; name that level, or leave device.cpu out");
  }
  const auto planned = planned_level(output_folder);
  if (!planned || *planned <= best) return planned.value_or(usual);
  throw PlanMismatch("the plan in '" + output_folder + "' needs a CPU with " + quoted(*planned) +
                     "; this machine has at most " + quoted(best) +
                     ", so its results would differ in their last bits. Continue on a machine with " +
                     quoted(*planned) + ", or use a new output folder");
}

}  // namespace

void use_cpu_level(const Config& config, Devices& devices) {
  const std::string& asked = config.device.cpu;
  if (asked != "auto" && !cpu_level_of(asked))
    throw UsageError("device.cpu is '" + asked + "'; it can be auto, amx, avx512_bf16, avx512, avx2 or sse4.1");
  // Fake devices run models on the CPU too. Without lane stages no model runs, so the plan needs no level.
  const bool on_cpu = devices.kind == Devices::Kind::cpu || devices.kind == Devices::Kind::fake;
  if (!on_cpu || config.chain.of(Section::lane).empty()) {
    if (asked == "auto") return;
    throw UsageError("device.cpu is '" + asked + "', but no model of this run computes on a CPU; leave it out");
  }
  // Fake devices accept every precision at every level, so that tests run models in 16 bits.
  const bool bf16 =
      devices.kind == Devices::Kind::cpu && find_precisions(config.device.precision, devices).has(Precision::bf16);
  const CpuLevel usual = bf16 ? best_level() : fp32_level(best_level());
  const CpuLevel level = chosen_level(asked, config.output.folder, usual);
  if (bf16 && !has_bf16(level))
    throw UsageError("device.precision names bf16, but models compute with the instructions " + quoted(level) +
                     ", which have no bf16; leave the option out, or use a CPU with avx512_bf16 or amx");
  devices.cpu_level = name_of(level);
  devices.mkl_instructions = mkl_instructions(level);
}

}  // namespace millrace
