// `millrace report`.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <optional>

#include "apps/attempt.hpp"
#include "apps/commands.hpp"
#include "apps/page/report_page.hpp"
#include "apps/report_text.hpp"
#include "apps/terminal.hpp"
#include "base/nearest.hpp"
#include "io/files/source_names.hpp"
#include "io/results/segments_manifest.hpp"
#include "stages/options.hpp"

namespace millrace {
namespace {

constexpr const char* usage =
    "Usage: millrace report OUT [--run NAME] [--html [FILE] | --json]\n"
    "\n"
    "Prints the report of the newest attempt of an output folder again. It changes nothing in the results.\n"
    "\n"
    "  --run NAME     the attempt with this name in OUT/runs/\n"
    "  --html [FILE]  write the report as a page for browsers, by default OUT/runs/NAME/report.html\n"
    "  --json         print report.json\n";

struct ReportArguments {
  std::string output, run;
  std::optional<std::string> page;  // empty: in the folder of the attempt
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
    } else if (word == "--html") {
      // The folder may come last.
      parsed.page = value_follows && (i + 2 < arguments.size() || !folders.empty()) ? arguments[++i] : "";
    } else if (word.starts_with("--")) {
      const std::array<std::string, 3> known{"--run", "--html", "--json"};
      throw UsageError("'" + word + "' is not an option" +
                       did_you_mean(word, known, "`millrace report --help` lists them"));
    } else {
      folders.push_back(word);
    }
  }
  if (folders.size() != 1) throw UsageError("`millrace report` needs one output folder: `millrace report OUT`");
  if (parsed.json && parsed.page) throw UsageError("--html and --json exclude each other: name one of them");
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
  if (parsed.json) {
    std::printf("%s\n", attempt.report.dump(2).c_str());
    return ExitCode::ok;
  }
  try {
    std::string text =
        to_text(attempt.report, parsed.output, terminal_columns(STDOUT_FILENO), wants_colour(STDOUT_FILENO));
    if (parsed.page) text += write_page(attempt.report, parsed.output, attempt.folder, *parsed.page);
    std::fputs(text.c_str(), stdout);
  } catch (const nlohmann::json::exception& error) {
    throw ResultsDamaged("'" + display_name(attempt.folder) + "/report.json' is damaged (" + error.what() +
                         "). The results in segments/ are not affected; --run NAME chooses another attempt");
  }
  return ExitCode::ok;
}

}  // namespace millrace
