#pragma once

#include <string>

#include "base/json.hpp"

namespace millrace {

/// An attempt that has ended.
struct Attempt {
  std::string output;  ///< folder
  std::string folder;  ///< out/runs/<name>
  nlohmann::json report;
};

/// Reads report.json of an attempt of an output folder; an empty `name` is the newest attempt.
/// It takes no lock, and reads only files in runs/ and lock.json.
/// Throws UsageError if there is no such attempt or it has no report, and LockedError if it is still running.
/// Throws ResultsDamaged if the report is damaged, and OutputMismatchError if another version wrote it.
Attempt read_attempt(const std::string& output, const std::string& name);

/// Reads report.json of an attempt that a user names by its output folder (the newest attempt) or by
/// OUT/runs/NAME. Throws as read_attempt().
Attempt find_attempt(const std::string& place);

/// run.json of an attempt; an empty object if it is missing or damaged.
nlohmann::json read_run(const std::string& attempt_folder);

/// A copy for a terminal: in all strings and keys, characters that control a terminal are escapes, such as \x1b.
/// A report can come from anybody.
nlohmann::json for_terminal(const nlohmann::json& report);

}  // namespace millrace
