#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "apps/command_line.hpp"
#include "apps/commands.hpp"
#include "apps/estimate.hpp"
#include "apps/exit_code.hpp"
#include "apps/profile.hpp"
#include "apps/python_set.hpp"
#include "apps/run.hpp"
#include "apps/serve/live_server.hpp"
#include "apps/signals.hpp"
#include "apps/terminal.hpp"
#include "apps/tune.hpp"
#include "base/nearest.hpp"
#include "models/engines/cpu_level.hpp"
#include "models/engines/threads.hpp"
#include "models/engines/torch_plugin.hpp"
#include "run/builtin.hpp"
#include "run/config.hpp"
#include "run/cpu_plan.hpp"
#include "run/job.hpp"
#include "run/limits.hpp"
#include "run/message_of.hpp"

namespace millrace {
namespace {

constexpr const char* usage =
    "Millrace finds objects in large collections of pictures with a detector (YOLO) and outlines them with a segmenter "
    "(SAM).\n"
    "\n"
    "  millrace run --input pictures/ --output out/ --detector yolov8n.pkg --segmenter mobile_sam.pkg\n"
    "\n"
    "Commands:\n"
    "  run       find and outline objects; the same command again resumes\n"
    "  estimate  predict time, memory and output of a run from a sample\n"
    "  status    show the progress of an output folder\n"
    "  report    print the report of an attempt again, or write it as a page for browsers\n"
    "  compare   compare two attempts: speed, settings, machine and results\n"
    "  tune      find the settings with which a run is fastest here, and write them as a recipe\n"
    "  profile   measure the model calls at several sizes, and find the best size\n"
    "  reduce    compute a summary of the finished segments of an output folder\n"
    "  model     convert weights into model packages\n"
    "  inspect   check model packages and describe them\n"
    "  compile   compile a model package for this machine, so that it runs faster\n"
    "  verify    compare the results of a compiled package, or of another precision, with the original\n"
    "  stages    list the stages for recipes, and all options\n"
    "  doctor    list the libraries and devices of this machine, and missing parts\n"
    "\n"
    "`millrace COMMAND --help` describes a command. `millrace --version` prints the version.\n";

constexpr const char* what_to_type =
    "`millrace run` needs the place of the pictures and a folder for results:\n"
    "\n"
    "  millrace run --input pictures/ --output out/ --detector yolov8n.pkg --segmenter mobile_sam.pkg --format "
    "overlay\n"
    "\n"
    "--input also takes single pictures, globs, lists, CSV and JSONL manifests, and - for names on stdin.\n"
    "To make packages, run `millrace model yolov8n.pt mobile_sam.pt`.\n"
    "`millrace run --help` shows all options.\n";

constexpr const char* of_builtin_models =
    "Without --detector and --segmenter, the built-in models run. They know only the drawn scenes of `make demo`.\n";

// LibTorch and its libraries read the environment once, when they are opened, so this runs before.
// Setting it is safe only while the process has one thread.
void prepare(const Config& config, const Devices& devices) {
  const ResolvedConfig resolved = resolve_for(config, config.output.folder, devices);
  set_environment(environment_for_teams(resolved.team));
  if (const auto level = cpu_level_of(devices.cpu_level)) set_environment(environment_for_level(*level));
  // Compiled code then refuses inputs of other shapes. Else it would read past their end.
  set_environment({{"AOTI_RUNTIME_CHECK_INPUTS", "1"}});
  keep_freed_memory();
  check_limits(resolved, config.serve.address.empty() ? 0 : files_of_live_server);
}

/// Executes `millrace run`, or `millrace estimate` with its own arguments in `estimated`.
ExitCode run_command(const std::vector<std::string>& arguments, const EstimateArguments* estimated) {
  RunArguments run_arguments = parse_run(arguments);
  Settings& settings = run_arguments.settings;
  Devices& devices = run_arguments.devices;
  run_arguments.builtin_models = use_builtin_models(settings, find_builtin_models());
  devices = find_devices(settings.text("device.kind"), settings.text("models.engine"));
  // After find_devices(): stages have other defaults on a GPU.
  use_defaults_of(devices, settings);
  // parse_config() refuses stages in a wrong order. Settings that are only shown may have any order.
  if (run_arguments.print_config) {
    check_values(settings);
    std::fputs(settings.print().c_str(), stdout);
    return ExitCode::ok;
  }
  const Config config = parse_config(settings);
  use_cpu_level(config, devices);
  // A dry run starts no pipeline and opens no LibTorch.
  if (!run_arguments.dry_run) prepare(config, devices);
  // It starts a thread, so it comes after prepare(). Threads of the run inherit its blocked signals.
  StopSignals signals(estimated == nullptr
                          ? StopTexts()
                          : StopTexts{"stopping the sample (up to 20 s); press Ctrl-C again to stop now",
                                      "stopped now; remove the folder .tmp-estimate-* in the output or above it",
                                      "stopped now: the sample did not end in 20 s; remove the folder "
                                      ".tmp-estimate-* in the output or above it"});
  if (estimated != nullptr)
    return estimate(*estimated, run_arguments, config, load_torch_engine, open_variant, &signals);
  return run(run_arguments, config, load_torch_engine, open_variant, &signals);
}

ExitCode profile_command(const std::vector<std::string>& arguments) {
  if (asks_for_help(arguments)) {
    std::fputs(profile_help().c_str(), stdout);
    return ExitCode::ok;
  }
  ProfileArguments parsed = parse_profile(arguments);
  Settings& settings = parsed.run.settings;
  parsed.run.builtin_models = use_builtin_models(settings, find_builtin_models());
  parsed.run.devices = find_devices(settings.text("device.kind"), settings.text("models.engine"));
  // Without use_defaults_of(): the command chooses the sizes, and padding would hide them.
  std::vector<ProfileCombination> combinations = combinations_of(parsed, parsed.run.devices);
  prepare(combinations.front().config, parsed.run.devices);
  StopSignals signals(StopTexts{"stopping after this call; press Ctrl-C again to stop now", "stopped now",
                                "stopped now: the last call took more than 20 s"});
  return profile_command(parsed, std::move(combinations), load_torch_engine, open_variant, &signals);
}

ExitCode tune_command(const std::vector<std::string>& arguments) {
  if (asks_for_help(arguments)) {
    std::fputs(tune_help().c_str(), stdout);
    return ExitCode::ok;
  }
  TuneArguments parsed = parse_tune(arguments);
  Settings& settings = parsed.run.settings;
  parsed.run.builtin_models = use_builtin_models(settings, find_builtin_models());
  parsed.run.devices = find_devices(settings.text("device.kind"), settings.text("models.engine"));
  use_defaults_of(parsed.run.devices, settings);
  const Config config = parse_config(settings);
  use_cpu_level(config, parsed.run.devices);
  // Without prepare(): each trial is a process of its own, with its own teams.
  StopSignals signals(StopTexts{"stopping the trial (up to 20 s); press Ctrl-C again to stop now",
                                "stopped now; remove the folder .tmp-tune-* next to the recipe",
                                "stopped now: the trial did not end in 20 s; remove the folder .tmp-tune-* next to the "
                                "recipe"});
  return tune_command(parsed, config, &signals);
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
  return run_command(arguments, nullptr);
}

ExitCode estimate_command(const std::vector<std::string>& arguments) {
  if (asks_for_help(arguments)) {
    std::fputs(estimate_help().c_str(), stdout);
    return ExitCode::ok;
  }
  const EstimateArguments parsed = parse_estimate(arguments);
  return run_command(parsed.run, &parsed);
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
  if (command == "estimate") return estimate_command(rest);
  if (command == "status") return status_command(rest);
  if (command == "report") return report_command(rest);
  if (command == "compare") return compare_command(rest);
  if (command == "tune") return tune_command(rest);
  if (command == "profile") return profile_command(rest);
  if (command == "reduce") return reduce_command(rest);
  if (command == "model") return model_command(rest);
  if (command == "inspect") return inspect_command(rest);
  if (command == "compile" || command == "verify") run_in_python_set(command + ".py", rest);
  if (command == "stages") return stages_command(rest);
  if (command == "doctor") return doctor_command(rest);
  const std::vector<std::string> known{"run",     "estimate", "status", "report", "compare",
                                       "tune",    "profile",  "reduce", "model",  "inspect",
                                       "compile", "verify",   "stages", "doctor", "help"};
  throw UsageError("'" + command + "' is not a command" + did_you_mean(command, known, "`millrace --help` lists them"));
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  // Before any file is opened.
  fill_closed_descriptors();
  try {
    return static_cast<int>(dispatch({argv + 1, argv + argc}));
  } catch (const std::exception& error) {
    say(message_of(error));
    return static_cast<int>(exit_code_of(std::current_exception()));
  }
}
