#include "apps/profile.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <optional>
#include <utility>

#include "apps/arguments.hpp"
#include "apps/profile_output.hpp"
#include "apps/signals.hpp"
#include "apps/terminal.hpp"
#include "base/nearest.hpp"
#include "base/text.hpp"
#include "io/files/files.hpp"
#include "io/files/source_names.hpp"
#include "run/cpu_plan.hpp"
#include "run/resolve.hpp"

namespace millrace {
namespace {

constexpr int largest_size = 4096;
constexpr double longest_s = 3600;
constexpr std::size_t pictures_of_a_view = 16;  // spare ones are among them, for pictures that cannot be decoded

constexpr const char* help =
    "Usage: millrace profile [RECIPE.yaml] --input WHAT... [options of `millrace run`] [options]\n"
    "\n"
    "Measures the model calls of a run at several sizes: time, rate and memory. It marks the best size of each model\n"
    "method. Inputs come from a few pictures of WHAT. It writes no results.\n"
    "\n"
    "  --batches LIST   pictures (or crops) in a call; default: 1,2,4,8\n"
    "  --boxes LIST     boxes in a call of a segmenter's decoder; default: 1,4,16,64\n"
    "  --compare LIST   precision, engine, layout (of weights in TorchScript), graphs (of CUDA): repeats the sizes\n"
    "                   with each that exists here, in turns\n"
    "  --seconds S      time for the repeated calls of each size; default: 1\n"
    "  --json FILE      write all figures as JSON\n"
    "  --csv FILE       write the rows as CSV\n"
    "  --plot FILE      write a page with charts, for browsers (.html)\n"
    "  --help           print this text and exit\n"
    "\n"
    "The options of `millrace run` choose pictures, models and device: `millrace run --help` lists them. Options for\n"
    "its output have no effect here and are refused. Ctrl-C ends the command with the figures so far.\n"
    "\n"
    "Examples:\n"
    "  millrace profile --input pictures/ --detector yolov8n.pkg --segmenter mobile_sam.pkg\n"
    "  millrace profile --input pictures/ --compare precision --boxes 16,32,64 --json profile.json\n"
    "\n"
    "Exit codes:\n"
    "  0    done\n"
    "  2    wrong use, or no pictures\n"
    "  5    a problem with a model, codec, plug-in, device, CPU level or system limit\n"
    "  6    writing a file failed\n"
    "  130  stopped by Ctrl-C\n"
    "  143  stopped by SIGTERM\n";

std::vector<int> sizes_of(const std::string& option, const std::string& text) {
  std::vector<int> sizes;
  for (const std::string& word : words_of_list(text)) {
    const auto size = number_of<int>(word, 1, largest_size);
    if (!size)
      throw UsageError(option + " is '" + text + "'; it must be a list of whole numbers from 1 to " +
                       std::to_string(largest_size) + ", such as 1,2,4");
    sizes.push_back(*size);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

void read_comparison(const std::string& text, ProfileArguments& parsed) {
  const std::array<std::string, 4> known{"precision", "engine", "layout", "graphs"};
  for (const std::string& word : words_of_list(text)) {
    if (word == "precision") {
      parsed.compare_precisions = true;
    } else if (word == "engine") {
      parsed.compare_engines = true;
    } else if (word == "layout") {
      parsed.compare_layouts = true;
    } else if (word == "graphs") {
      parsed.compare_graphs = true;
    } else {
      throw UsageError("--compare cannot compare '" + word + "'" +
                       did_you_mean(word, known, "it compares precision, engine, layout and graphs"));
    }
  }
}

/// Throws UsageError if the user chose a value that --compare varies.
void check_free(const Settings& settings, const std::string& key, const std::string& what) {
  if (settings.origin(key).starts_with(command_line))
    throw UsageError("--compare " + what + " chooses " + key + " itself, but " + key + " is '" + settings.text(key) +
                     "' (" + settings.origin(key) + "); leave one of them out");
}

/// Whether the models can compute in this precision here.
bool exists_here(const std::string& precision, const Config& config, Devices devices) {
  try {
    (void)find_precisions(precision, devices);
    use_cpu_level(config, devices);
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

Config parsed_config(const Settings& settings) {
  Config config = parse_config(settings);
  // A recipe may name an output folder. Its plan must not choose variants or the CPU level.
  config.output.folder.clear();
  return config;
}

/// Gives each combination its packages. Removes combinations with the engine aoti if no variant exists.
/// Returns notes for the user.
std::vector<std::string> add_packages(std::vector<ProfileCombination>& combinations, const Devices& devices,
                                      const VariantOpener& open_variant) {
  std::vector<std::string> notes;
  const Packages packages = read_packages(combinations.front().config);
  if (packages.empty()) throw UsageError("no model is named; add --detector PACKAGE or --segmenter PACKAGE");
  std::vector<ProfileCombination> kept;
  for (ProfileCombination& combination : combinations) {
    combination.packages = packages;
    try {
      for (auto& note : use_variants(combination.packages, combination.config, devices, open_variant)) {
        if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));
      }
      const bool any =
          std::ranges::any_of(combination.packages, [](const auto& entry) { return entry.second->variant != nullptr; });
      if (combination.only_variants && !any) throw VariantError("compiled models do not run on this device");
      kept.push_back(std::move(combination));
    } catch (const VariantError& error) {
      if (!combination.only_variants) throw;
      notes.push_back("'" + combination.name + "' is left out: " + error.what());
    }
  }
  combinations = std::move(kept);
  return notes;
}

/// What of --compare does not exist on this machine.
void note_lone(const ProfileArguments& arguments, const std::vector<ProfileCombination>& combinations) {
  if (combinations.size() == 1 && arguments.compares())
    say("nothing to compare: only '" + combinations.front().name + "' exists for these models on this device");
}

}  // namespace

ProfileArguments parse_profile(const std::vector<std::string>& arguments) {
  const std::array<std::string, 7> own{"--batches", "--boxes", "--compare", "--seconds", "--json", "--csv", "--plot"};
  const std::array<std::string, 11> without_effect{"--output", "--format",  "--dry-run", "--print-config",
                                                   "--events", "--serve",   "--quiet",   "--add-new",
                                                   "--trace",  "--capture", "-q"};
  const SplitArguments split =
      split_arguments("profile", arguments, own, {}, without_effect, "`millrace profile` writes no results");
  ProfileArguments parsed;
  for (const auto& [option, value] : split.own) {
    if (option == "--batches") parsed.batches = sizes_of(option, value);
    if (option == "--boxes") parsed.boxes = sizes_of(option, value);
    if (option == "--compare") read_comparison(value, parsed);
    if (option == "--json") parsed.json = result_file(option, value, ".json");
    if (option == "--csv") parsed.csv = result_file(option, value, ".csv");
    if (option == "--plot") parsed.plot = result_file(option, value, ".html");
    if (option != "--seconds") continue;
    const auto seconds = number_of<double>(value, 0, longest_s);
    if (!seconds) throw UsageError("--seconds is '" + value + "'; it must be a number from 0 to 3600");
    parsed.seconds = *seconds;
  }
  parsed.run = parse_run(split.run);
  return parsed;
}

std::string profile_help() { return help; }

std::vector<ProfileCombination> combinations_of(const ProfileArguments& arguments, Devices& devices) {
  const Settings& given = arguments.run.settings;
  if (arguments.compare_precisions) check_free(given, "device.precision", "precision");
  if (arguments.compare_engines) check_free(given, "models.engine", "engine");
  if (arguments.compare_layouts && !arguments.compare_engines) check_free(given, "models.engine", "layout");
  if (arguments.compare_graphs) check_free(given, "models.graphs", "graphs");
  if (arguments.compare_graphs && devices.kind != Devices::Kind::cuda)
    throw UsageError(
        "--compare graphs needs a GPU, because a CPU has no CUDA graphs; add --device cuda, or leave it out");
  if ((arguments.compare_engines || arguments.compare_layouts) && devices.kind == Devices::Kind::simulated)
    throw UsageError("--compare engine and layout have no effect with a simulated engine; leave them out");
  std::vector<std::string> precisions{""};
  if (arguments.compare_precisions) {
    precisions.clear();
    for (const std::string word : {"fp32", "tf32", "bf16", "fp16"}) {
      Settings settings = given;
      settings.set("device.precision", {word}, "command line, --compare");
      if (exists_here(word, parsed_config(settings), devices)) precisions.push_back(word);
    }
  }
  struct Way {
    std::string engine{}, layout{};
    bool graphs = false;
  };
  std::vector<Way> ways;
  const auto add = [&](const std::string& engine, const std::string& layout) {
    ways.push_back({engine, layout});
    if (arguments.compare_graphs) ways.push_back({engine, layout, true});
  };
  const std::string in_torchscript = arguments.compare_engines || arguments.compare_layouts ? "torchscript" : "";
  add(in_torchscript, arguments.compare_layouts ? "channels-last" : "");
  if (arguments.compare_layouts) add(in_torchscript, "channels-first");
  // A variant has the layout with which it was compiled.
  if (arguments.compare_engines) add("aoti", "");
  std::vector<ProfileCombination> all;
  for (const std::string& precision : precisions) {
    for (const auto& [engine, layout, graphs] : ways) {
      Settings settings = given;
      if (!precision.empty()) settings.set("device.precision", {precision}, "command line, --compare");
      if (!engine.empty()) settings.set("models.engine", {engine}, "command line, --compare");
      std::string name = precision;
      const std::string launches = !arguments.compare_graphs ? "" : graphs ? "graph" : "launches";
      for (const std::string& word : {arguments.compare_engines ? engine : "", layout, launches})
        name += (name.empty() || word.empty() ? "" : " ") + word;
      Config config = parsed_config(settings);
      const bool as_graphs = arguments.compare_graphs ? graphs : config.models.graphs;
      if (as_graphs) check_graphs(devices);
      all.push_back({.name = name,
                     .config = std::move(config),
                     .only_variants = engine == "aoti",
                     .channels_last = layout != "channels-first",
                     .graphs = as_graphs});
    }
  }
  // One process has one level. The highest is that of bf16, and it has the instructions that fp32 needs.
  const auto in_bf16 = std::ranges::find_if(all, [&](const ProfileCombination& one) {
    return find_precisions(one.config.device.precision, devices).has(Precision::bf16);
  });
  use_cpu_level(in_bf16 == all.end() ? all.front().config : in_bf16->config, devices);
  return all;
}

ExitCode profile_command(const ProfileArguments& arguments, std::vector<ProfileCombination> combinations,
                         const EngineFactory& factory, const VariantOpener& open_variant, StopSignals* signals) {
  const Devices& devices = arguments.run.devices;
  const Config& config = combinations.front().config;
  const auto stopped = [&] { return signals != nullptr && signals->received() != 0; };
  const SourceSpec spec = source_spec(config);
  SourceSpec with_boxes = spec;
  // Boxes of a grid replace a missing detector, as those of a manifest do.
  with_boxes.inputs.emplace_back("boxes.jsonl");
  check_models(config, with_boxes);
  for (const auto& note : config.notes) say(note);
  const auto seed = static_cast<std::uint64_t>(config.input.seed);
  for (const auto& note : add_packages(combinations, devices, open_variant)) say(note);
  note_lone(arguments, combinations);
  const ChosenPictures pictures = choose_pictures(spec, pictures_of_a_view, seed, stopped);

  ProfileFigures figures{arguments, combinations, pictures};
  const ProfileListener listener{[](const std::string& text) { say(text); },
                                 [&](const std::vector<ProfileRow>& rows) {
                                   const std::string text = figures.add(rows);
                                   std::fputs(text.c_str(), stdout);
                                   std::fflush(stdout);
                                 },
                                 stopped};
  const auto finish = [&] {
    std::fputs(figures.end_of_text().c_str(), stdout);
    std::fflush(stdout);
    if (!arguments.json.empty()) write_result_file(arguments.json, figures.json().dump(2) + "\n");
    if (!arguments.csv.empty()) write_result_file(arguments.csv, figures.csv());
    if (!arguments.plot.empty()) write_result_file(arguments.plot, figures.page());
  };
  try {
    profile({combinations, devices, pictures, arguments.batches, arguments.boxes, arguments.seconds, seed}, factory,
            listener);
  } catch (const std::exception&) {
    figures.complete = false;
    finish();  // a long measurement must not be lost because one model failed
    throw;
  }
  figures.complete = !stopped();
  finish();
  if (figures.complete) return ExitCode::ok;
  return signals->received() == SIGTERM ? ExitCode::terminated : ExitCode::interrupted;
}

}  // namespace millrace
