#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "apps/command_line.hpp"
#include "apps/commands.hpp"
#include "apps/exit_code.hpp"
#include "apps/run.hpp"
#include "apps/signals.hpp"
#include "apps/terminal.hpp"
#include "base/nearest.hpp"
#include "models/engines/cpu_level.hpp"
#include "models/engines/threads.hpp"
#include "models/engines/torch_plugin.hpp"
#include "pipeline/cores.hpp"
#include "run/builtin.hpp"
#include "run/cpu_plan.hpp"
#include "run/limits.hpp"
#include "run/resolve.hpp"
#include "run/run_options.hpp"
#include "run/setup.hpp"

namespace millrace {
namespace {

constexpr const char* usage =
    "Millrace finds objects in large collections of pictures with a detector (YOLO) and outlines them with a segmenter "
    "(SAM).\n"
    "\n"
    "  millrace run --input pictures/ --output out/ --detector yolov8n.pkg --segmenter mobile_sam.pkg\n"
    "\n"
    "Commands:\n"
    "  run       find and outline objects; the same command again finishes what was left\n"
    "  status    what an output folder holds\n"
    "  inspect   what a model package is\n"
    "  stages    the stages a recipe can name, with all options\n"
    "  doctor    what was found on this machine, and what is missing\n"
    "\n"
    "`millrace COMMAND --help` tells more; `millrace --version` the version.\n";

constexpr const char* what_to_type =
    "`millrace run` needs to know where the pictures are and where results go:\n"
    "\n"
    "  millrace run --input pictures/ --output out/ --detector yolov8n.pkg --segmenter mobile_sam.pkg --format "
    "overlay\n"
    "\n"
    "--input also takes single pictures, globs, lists, CSV and JSONL manifests, and - for names on stdin. Packages "
    "are\n"
    "made with `make model WEIGHTS=yolov8n.pt SEGMENTER=mobile_sam.pt`. `millrace run --help` shows all options.\n";

constexpr const char* of_builtin_models =
    "Without --detector and --segmenter the built-in models run, which know only the drawn scenes of `make demo`.\n";

// LibTorch and its libraries read the environment when they are opened, which is later. No thread has begun yet.
void prepare(const RunArguments& arguments) {
  const Settings& settings = arguments.settings;
  const Numbers numbers = resolve(settings, static_cast<int>(std::ceil(available_cores())),
                                  planned_team(settings.parse<OutputOptions>().folder), arguments.devices);
  set_environment(environment_for_teams(numbers.team));
  if (const auto level = cpu_level_of(arguments.devices.cpu_level)) set_environment(environment_for_level(*level));
  keep_freed_memory();
  check_limits(numbers);
}

ExitCode run_command(const std::vector<std::string>& arguments) {
  if (asks_for_help(arguments)) {
    std::fputs(run_help().c_str(), stdout);
    return ExitCode::ok;
  }
  if (arguments.empty()) {
    std::fputs(what_to_type, stderr);
    if (!find_builtin_models().empty()) std::fputs(of_builtin_models, stderr);
    return ExitCode::usage;
  }
  RunArguments run_arguments = parse_run(arguments);
  run_arguments.builtin_models = use_builtin_models(run_arguments.settings, find_builtin_models());
  run_arguments.devices = find_devices(run_arguments.settings.parse<DeviceOptions>().kind,
                                       run_arguments.settings.parse<ModelOptions>().engine);
  use_shapes_of(run_arguments.devices, run_arguments.settings);
  run_arguments.devices.cpu_level = choose_cpu_level(run_arguments.settings, run_arguments.devices);
  if (!run_arguments.print_config && !run_arguments.dry_run) prepare(run_arguments);
  StopSignals signals;
  return run(run_arguments, load_torch_engine, &signals);
}

ExitCode dispatch(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(usage, stderr);
    return ExitCode::usage;
  }
  const std::string& command = arguments.front();
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (command == "--help" || command == "-h" || command == "help") {
    std::fputs(usage, stdout);
    return ExitCode::ok;
  }
  if (command == "--version") {
    std::printf("millrace %s\n", MILLRACE_VERSION);
    return ExitCode::ok;
  }
  if (command == "run") return run_command(rest);
  if (command == "status") return status_command(rest);
  if (command == "inspect") return inspect_command(rest);
  if (command == "stages") return stages_command(rest);
  if (command == "doctor") return doctor_command(rest);
  const std::vector<std::string> known{"run", "status", "inspect", "stages", "doctor", "help"};
  throw UsageError("'" + command + "' is no command" + did_you_mean(command, known, "`millrace --help` lists them"));
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  fill_closed_descriptors();
  try {
    return static_cast<int>(dispatch({argv + 1, argv + argc}));
  } catch (const std::exception& error) {
    say(message_of(error));
    return static_cast<int>(exit_code_of(std::current_exception()));
  }
}
