// The command line of `millrace tune`.
#include <array>

#include "apps/arguments.hpp"
#include "apps/tune.hpp"
#include "stages/options.hpp"

namespace millrace {
namespace {

constexpr const char* help =
    "Usage: millrace tune [RECIPE.yaml] --input WHAT... --output TUNED.yaml [options of `millrace run`] [options]\n"
    "\n"
    "Finds the settings with which a run is fastest on this machine, and writes them as a recipe. It runs samples of "
    "the\n"
    "input with other values of batch.size, threads.lanes, threads.workers, gate.frames, segment.box_batch and\n"
    "device.precision. Options that you set keep their values. It writes no results.\n"
    "\n"
    "  --for GOAL       throughput (default), or latency:TIME such as latency:500ms: the highest rate at which 95 % "
    "of\n"
    "                   the pictures take at most TIME from admission to commit\n"
    "  --output FILE    the recipe to write (.yaml)\n"
    "  --trials N       maximum number of trials; default: 12\n"
    "  --seconds S      time of a trial with the defaults, without loading; default: 10\n"
    "  --pairs N        pairs of runs at the end, with the defaults and with the best values; default: 3\n"
    "  --again          measure even if an earlier `millrace tune` measured these models on this machine\n"
    "  --json FILE      write all figures as JSON\n"
    "  --help           print this text and exit\n"
    "\n"
    "Examples:\n"
    "  millrace tune --input pictures/ --detector yolov8n.pkg --segmenter mobile_sam.pkg --output tuned.yaml\n"
    "  millrace run tuned.yaml --output out/\n"
    "\n"
    "Exit codes:\n"
    "  0    done\n"
    "  2    wrong use, no pictures, or no settings keep the latency\n"
    "  5    a problem with a model, codec, plug-in, device, CPU level or system limit\n"
    "  6    writing failed\n"
    "  130  stopped by Ctrl-C\n"
    "  143  stopped by SIGTERM\n";

/// Nothing for throughput.
std::optional<double> goal_of(const std::string& text) {
  if (text == "throughput") return std::nullopt;
  constexpr const char* latency = "latency:";
  if (text.starts_with(latency)) {
    const std::string time = text.substr(std::string(latency).size());
    const bool milliseconds = time.ends_with("ms");
    if (milliseconds || time.ends_with("s")) {
      const auto value = number_of<double>(time.substr(0, time.size() - (milliseconds ? 2 : 1)), 1e-3, 1e9);
      if (value) return milliseconds ? *value / 1000 : *value;
    }
  }
  throw UsageError("--for is '" + text +
                   "'; it must be throughput, or latency:TIME such as latency:500ms or latency:2s");
}

}  // namespace

TuneArguments parse_tune(const std::vector<std::string>& arguments) {
  const std::array<std::string, 6> own{"--for", "--output", "--trials", "--seconds", "--pairs", "--json"};
  const std::array<std::string, 1> flags{"--again"};
  const std::array<std::string, 9> refused{"--dry-run", "--print-config", "--events", "--serve",  "--quiet",
                                           "-q",        "--add-new",      "--trace",  "--capture"};
  const SplitArguments split =
      split_arguments("tune", arguments, own, flags, refused, "`millrace tune` writes no results");
  TuneArguments parsed;
  const auto whole = [](const std::string& option, const std::string& value, int lowest, int highest) {
    const auto number = number_of<int>(value, lowest, highest);
    if (!number)
      throw UsageError(option + " is '" + value + "'; it must be a whole number from " + std::to_string(lowest) +
                       " to " + std::to_string(highest));
    return *number;
  };
  for (const auto& [option, value] : split.own) {
    if (option == "--for") parsed.most_latency_s = goal_of(value);
    if (option == "--output") parsed.output = result_file(option, value, ".yaml");
    if (option == "--json") parsed.json = result_file(option, value, ".json");
    if (option == "--trials") parsed.trials = whole(option, value, 1, 100);
    if (option == "--pairs") parsed.pairs = whole(option, value, 0, 100);
    if (option == "--again") parsed.again = true;
    if (option != "--seconds") continue;
    const auto seconds = number_of<double>(value, 0.1, 3600);
    if (!seconds) throw UsageError("--seconds is '" + value + "'; it must be a number from 0.1 to 3600");
    parsed.seconds = *seconds;
  }
  if (parsed.output.empty()) throw UsageError("`millrace tune` needs a file for the recipe: add --output tuned.yaml");
  parsed.run = parse_run(split.run);
  return parsed;
}

std::string tune_help() { return help; }

}  // namespace millrace
