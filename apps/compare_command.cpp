// `millrace compare`.
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <vector>

#include "apps/commands.hpp"
#include "apps/compare.hpp"
#include "apps/terminal.hpp"
#include "base/nearest.hpp"
#include "io/files/source_names.hpp"
#include "io/results/segments_manifest.hpp"
#include "stages/options.hpp"

namespace millrace {
namespace {

constexpr const char* usage =
    "Usage: millrace compare FIRST SECOND [--worst N] [--pictures FOLDER] [--json]\n"
    "\n"
    "Shows how two attempts differ: speed, stages, settings, machine and results. FIRST and SECOND are output folders\n"
    "(their newest attempts), or attempts such as OUT/runs/20260101T000000Z-1. It changes nothing in them.\n"
    "\n"
    "  --worst N          list the N pictures that differ most (default 10): the lowest mask IoU first\n"
    "  --pictures FOLDER  draw these pictures with the objects of both runs, as FOLDER/1.jpg, FOLDER/2.jpg, ...\n"
    "  --json             print JSON\n";

struct CompareArguments {
  std::vector<std::string> places;
  std::optional<std::string> pictures;
  std::size_t worst = 10;
  bool json = false;
};

CompareArguments parse(const std::vector<std::string>& arguments) {
  CompareArguments parsed;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const bool value_follows = i + 1 < arguments.size();
    if (word == "--json") {
      parsed.json = true;
    } else if (word == "--worst") {
      constexpr std::size_t largest = 10'000;  // they are kept in memory
      const std::string value = value_follows ? arguments[++i] : "";
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed.worst);
      if (value.empty() || error != std::errc() || end != value.data() + value.size() || parsed.worst > largest)
        throw UsageError("--worst needs a number of pictures from 0 to 10,000");
    } else if (word == "--pictures") {
      if (!value_follows) throw UsageError("--pictures needs a folder for the pictures");
      parsed.pictures = arguments[++i];
    } else if (word.starts_with("--")) {
      const std::array<std::string, 3> known{"--worst", "--pictures", "--json"};
      throw UsageError("'" + word + "' is not an option" +
                       did_you_mean(word, known, "`millrace compare --help` lists them"));
    } else {
      parsed.places.push_back(word);
    }
  }
  if (parsed.places.size() != 2)
    throw UsageError("`millrace compare` needs two output folders or attempts: `millrace compare out-a out-b`");
  return parsed;
}

}  // namespace

ExitCode compare_command(const std::vector<std::string>& arguments) {
  if (asks_for_help(arguments)) {
    std::fputs(usage, stdout);
    return ExitCode::ok;
  }
  const CompareArguments parsed = parse(arguments);
  const Attempt first = find_attempt(parsed.places[0]), second = find_attempt(parsed.places[1]);
  std::error_code error;
  // Pictures of the user can have the names of ours.
  if (parsed.pictures && std::filesystem::exists(*parsed.pictures, error) &&
      !std::filesystem::is_empty(*parsed.pictures, error))
    throw UsageError("--pictures is '" + display_name(*parsed.pictures) +
                     "', which is no empty folder: name a new folder");
  std::optional<ResultsComparison> results;
  if (!std::filesystem::equivalent(first.output, second.output, error))
    results = compare_results(first.output, second.output, parsed.worst);
  nlohmann::json comparison;
  std::string text;
  try {
    comparison = compare_attempts(first, second, results ? &*results : nullptr);
    text = parsed.json ? comparison.dump(2) + "\n"
                       : comparison_text(for_terminal(comparison), terminal_columns(STDOUT_FILENO));
  } catch (const nlohmann::json::exception& damage) {
    throw ResultsDamaged("report.json or run.json of '" + display_name(first.folder) + "' or '" +
                         display_name(second.folder) + "' is damaged (" + damage.what() +
                         "): name other attempts of these outputs");
  }
  std::vector<std::string> left_out;
  if (parsed.pictures) {
    if (!results) throw UsageError("--pictures needs two output folders: attempts of one folder have the same results");
    left_out = draw_differences(results->worst, first.output, *parsed.pictures);
  }
  std::fputs(text.c_str(), stdout);
  for (const auto& sentence : left_out) say(sentence);
  return ExitCode::ok;
}

}  // namespace millrace
