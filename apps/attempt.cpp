#include "apps/attempt.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/text.hpp"
#include "io/files/files.hpp"
#include "io/files/lock.hpp"
#include "io/files/source_names.hpp"
#include "io/results/run_folder.hpp"
#include "io/results/segments_manifest.hpp"
#include "stages/options.hpp"

namespace millrace {
namespace {

constexpr std::int64_t largest_report = 64LL << 20;
constexpr int schema = 1;

// A report has few levels. Copying and printing JSON with millions of them would overflow the stack.
bool not_too_deep(int depth, nlohmann::json::parse_event_t /*event*/, nlohmann::json& /*parsed*/) {
  return depth <= 64;
}

bool has_report(const std::string& output, const std::string& name) {
  std::error_code error;
  return std::filesystem::exists(output + "/runs/" + name + "/report.json", error);
}

// Names in a report are escaped already, so backslashes stay as they are.
std::string escaped(const std::string& text) {
  std::string all;
  for (std::size_t start = 0;;) {
    const auto end = text.find('\\', start);
    all += display_name(text.substr(start, end == std::string::npos ? end : end - start));
    if (end == std::string::npos) return all;
    all += '\\';
    start = end + 1;
  }
}

}  // namespace

nlohmann::json for_terminal(const nlohmann::json& report) {
  if (report.is_string()) return escaped(report.get<std::string>());
  if (!report.is_structured()) return report;
  auto copy = report.is_array() ? nlohmann::json::array() : nlohmann::json::object();
  if (report.is_array()) {
    for (const auto& element : report) copy.push_back(for_terminal(element));
  } else {
    for (const auto& [key, value] : report.items()) copy[escaped(key)] = for_terminal(value);
  }
  return copy;
}

Attempt read_attempt(const std::string& output, const std::string& name) {
  const auto names = attempts_of(output);
  const std::string shown = display_name(output);
  if (names.empty())
    throw UsageError("'" + shown +
                     "' has no attempts: it is not an output folder of Millrace, or nothing ran there yet");
  const std::string& chosen = name.empty() ? names.back() : name;
  if (std::ranges::find(names, chosen) == names.end()) {
    throw UsageError("'" + display_name(chosen) + "' is not an attempt of '" + shown + "'; the newest one is " +
                     display_name(names.back()) + ", and " + shown + "/runs/ has all of them");
  }
  Attempt attempt{output, output + "/runs/" + chosen, {}};
  const std::string file = attempt.folder + "/report.json";
  if (!has_report(output, chosen)) {
    if (const auto holder = lock_holder(output); holder && chosen == names.back()) {
      throw LockedError(display_name(output + "/lock.json"), *holder,
                        "a report exists when the attempt has ended; `millrace status` shows its progress");
    }
    const auto newest =
        std::find_if(names.rbegin(), names.rend(), [&](const auto& it) { return has_report(output, it); });
    throw UsageError("the attempt " + display_name(chosen) + " of '" + shown +
                     "' has no report: it was killed, or refused before it began" +
                     (newest == names.rend() ? "" : "; the newest one with a report is " + display_name(*newest)));
  }
  attempt.report = nlohmann::json::parse(read_text_file(file, largest_report), not_too_deep, false);
  if (!attempt.report.is_object() || !attempt.report.contains("schema")) {
    throw ResultsDamaged("'" + display_name(file) +
                         "' is damaged: it is not a report in JSON. The results in segments/ are not affected. Name "
                         "another attempt");
  }
  if (attempt.report["schema"] != schema) {
    throw OutputMismatchError("'" + display_name(file) + "' has schema " + attempt.report["schema"].dump() +
                              ", but this program reads schema " + std::to_string(schema) +
                              ": use the version of Millrace that run.json next to it names");
  }
  return attempt;
}

nlohmann::json read_run(const std::string& attempt_folder) {
  try {
    auto run = nlohmann::json::parse(read_text_file(attempt_folder + "/run.json", largest_report), not_too_deep, false);
    if (run.is_object()) return run;
  } catch (const StorageError&) {  // it is missing, or too large
  }
  return nlohmann::json::object();
}

Attempt find_attempt(const std::string& place) {
  const auto trimmed = place.find_last_not_of('/');
  const std::filesystem::path path(trimmed == std::string::npos ? place : place.substr(0, trimmed + 1));
  if (path.parent_path().filename() != "runs" || !is_attempt_name(path.filename().string()))
    return read_attempt(place, {});
  const std::filesystem::path output = path.parent_path().parent_path();
  return read_attempt(output.empty() ? "." : output.string(), path.filename().string());
}

}  // namespace millrace
