// `millrace report`.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <optional>
#include <vector>

#include "apps/attempt.hpp"
#include "apps/commands.hpp"
#include "apps/page/report_page.hpp"
#include "apps/report_text.hpp"
#include "apps/terminal.hpp"
#include "apps/what_if.hpp"
#include "base/nearest.hpp"
#include "io/files/source_names.hpp"
#include "io/results/segments_manifest.hpp"
#include "stages/options.hpp"

namespace millrace {
namespace {

constexpr const char* usage =
    "Usage: millrace report OUT [--run NAME] [--html [FILE]] [--what-if CHANGE]... [--json]\n"
    "\n"
    "Prints the report of the newest attempt of an output folder again. It changes nothing in the results.\n"
    "With --what-if, it only predicts the rate of this attempt with each change.\n"
    "\n"
    "  --run NAME        the attempt with this name in OUT/runs/\n"
    "  --html [FILE]     write the report as a page for browsers, by default OUT/runs/NAME/report.html\n"
    "  --what-if CHANGE  for example \"segment x2\", threads.workers=2, gate.frames=32, cores=8 or others=0;\n"
    "                    commas separate several changes that are made at once\n"
    "  --json            print report.json, or the predictions as JSON\n";

struct ReportArguments {
  std::string output, run;
  std::optional<std::string> page;  // empty: in the folder of the attempt
  std::vector<std::string> changes;
  bool json = false;
};

ReportArguments parse(const std::vector<std::string>& arguments) {
  ReportArguments parsed;
  std::vector<std::string> folders;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const bool value_follows = i + 1 < arguments.size() && !arguments[i + 1].starts_with("--");
    if (word == "--json") {
      parsed.json = true;
    } else if (word == "--run") {
      if (!value_follows) throw UsageError("--run needs the name of an attempt, such as 20260101T000000Z-1");
      parsed.run = arguments[++i];
    } else if (word == "--what-if") {
      if (!value_follows) throw UsageError("--what-if needs a change, such as \"segment x2\" or threads.workers=2");
      parsed.changes.push_back(arguments[++i]);
    } else if (word == "--html") {
      // The folder may come last.
      parsed.page = value_follows && (i + 2 < arguments.size() || !folders.empty()) ? arguments[++i] : "";
    } else if (word.starts_with("--")) {
      const std::array<std::string, 4> known{"--run", "--html", "--what-if", "--json"};
      throw UsageError("'" + word + "' is not an option" +
                       did_you_mean(word, known, "`millrace report --help` lists them"));
    } else {
      folders.push_back(word);
    }
  }
  if (folders.size() != 1) throw UsageError("`millrace report` needs one output folder: `millrace report OUT`");
  if (parsed.json && parsed.page) throw UsageError("--html and --json exclude each other: name one of them");
  if (parsed.page && !parsed.changes.empty())
    throw UsageError("--html and --what-if exclude each other: the page shows what_if of report.json");
  parsed.output = folders.front();
  return parsed;
}

}  // namespace

ExitCode report_command(const std::vector<std::string>& arguments) {
  if (asks_for_help(arguments)) {
    std::fputs(usage, stdout);
    return ExitCode::ok;
  }
  const ReportArguments parsed = parse(arguments);
  const Attempt attempt = read_attempt(parsed.output, parsed.run);
  if (!parsed.changes.empty()) {
    const auto predictions = predict(attempt.folder, parsed.changes);
    const std::string text =
        parsed.json ? predictions.dump(2) + "\n" : what_if_text(predictions, parsed.changes.size(), -1);
    std::fputs(text.c_str(), stdout);
    return ExitCode::ok;
  }
  if (parsed.json) {
    std::printf("%s\n", attempt.report.dump(2).c_str());
    return ExitCode::ok;
  }
  try {
    std::string text = to_text(for_terminal(attempt.report), parsed.output, terminal_columns(STDOUT_FILENO),
                               wants_colour(STDOUT_FILENO));
    if (parsed.page) text += write_page(attempt.report, parsed.output, attempt.folder, *parsed.page);
    std::fputs(text.c_str(), stdout);
  } catch (const nlohmann::json::exception& error) {
    throw ResultsDamaged("'" + display_name(attempt.folder) + "/report.json' is damaged (" + error.what() +
                         "). The results in segments/ are not affected; --run NAME chooses another attempt");
  }
  return ExitCode::ok;
}

}  // namespace millrace
