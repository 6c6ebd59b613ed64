#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "apps/commands.hpp"
#include "base/cpu.hpp"
#include "base/plugin.hpp"
#include "base/text.hpp"
#include "io/decode/imgcodecs.hpp"
#include "models/engines/cpu_level.hpp"
#include "models/engines/torch_plugin.hpp"
#include "pipeline/cores.hpp"
#include "run/builtin.hpp"
#include "run/devices.hpp"
#include "stages/options.hpp"

namespace millrace {
namespace {

void row(const char* name, const std::string& value) { std::printf("%-12s %s\n", name, value.c_str()); }

}  // namespace

ExitCode doctor_command(const std::vector<std::string>& arguments) {
  if (asks_for_help(arguments)) {
    std::fputs("Usage: millrace doctor\n\nShows what this machine has and what is missing.\n", stdout);
    return ExitCode::ok;
  }
  if (!arguments.empty()) throw UsageError("`millrace doctor` takes no arguments");
  bool healthy = true;
  std::array<char, 64> text{};
  row("program", "millrace " MILLRACE_VERSION);
  std::snprintf(text.data(), text.size(), "%.1f cores usable, %s memory", available_cores(),
                readable_bytes(static_cast<double>(memory_of_machine())).c_str());
  row("processor", cpu_name() + "; " + text.data());
  const std::string features = cpu_features();
  row("features", features.empty() ? "none that LibTorch has kernels for" : features);
  const GpuState gpus = look_for_gpus();
  row("GPU", gpus.text);
  healthy = healthy && gpus.healthy;
  const CpuLevel best = best_level(), level = fp32_level(best);
  row("CPU level", std::string(name_of(level)) + (has_bf16(best) ? ", for bf16 " + std::string(name_of(best)) : "") +
                       (best == level_of_cpu() ? "" : ": an environment variable limits it"));
  set_environment(environment_for_level(level));  // before LibTorch is opened, as in a run
  try {
    const TorchFacts torch = torch_facts();
    row("LibTorch", torch.version + " with kernels for " + torch.cpu_capability + ", " + torch.library);
  } catch (const PluginError& error) {
    row("LibTorch", std::string("models cannot run: ") + error.what());
    healthy = false;
  }
  const std::string allocator = loaded_library("libtcmalloc");
  row("allocator", allocator.empty() ? "the system's: models run at about half speed; build with tcmalloc" : allocator);
  // torch_facts() has opened LibTorch, which brings OpenMP. The program itself is not linked to it.
  row("OpenMP", loaded_library("libgomp"));
  const std::string others = check_imgcodecs_plugin();
  row("codecs",
      others.empty() ? "JPEG, PNG; BMP, WebP, TIFF, PNM, JPEG 2000 through OpenCV" : "JPEG, PNG; no others: " + others);
  healthy = healthy && others.empty();
  const std::string models = find_builtin_models();
  row("models", models.empty() ? "no built-in ones found; name your own with --detector and --segmenter"
                               : "built-in ones in " + models);
  std::printf("%s\n", healthy ? "nothing is missing" : "something is missing: see the rows above");
  return healthy ? ExitCode::ok : ExitCode::environment;
}

}  // namespace millrace
