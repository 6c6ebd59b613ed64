#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/files.hpp"

namespace millrace {

/// Whether a folder in runs/ has the name of an attempt. Copies of attempts have other names.
bool is_attempt_name(const std::string& name);
/// The names of all attempts of an output folder, oldest first. Throws StorageError.
std::vector<std::string> attempts_of(const std::string& output);

/// The files of one attempt, `<out>/runs/<UTC time>-<n>/`.
/// Everything that depends on time, host or attempt is here, and so not in the segments.
class RunFolder {
 public:
  /// Makes the folder, which is the newest of attempts_of(). If there is one of this second or later, because the clock
  /// was set back, the folder has its time and the next number. The output folder must exist.
  RunFolder(const std::string& out_folder, std::chrono::system_clock::time_point start);

  const std::string& path() const { return path_; }

  /// run.json: version, start time and settings; written once at the start.
  void write_run(std::string_view json) const { write_durably(path_, "run.json", json); }
  /// report.json: the results of the attempt; written at the end.
  void write_report(std::string_view json) const { write_durably(path_, "report.json", json); }
  /// recording.json: what the what-if model replays; written at the end.
  void write_recording(std::string_view json) const { write_durably(path_, "recording.json", json); }
  /// timeline.json: what the lanes did and when; written at the end.
  void write_timeline(std::string_view json) const { write_durably(path_, "timeline.json", json); }
  /// Appends one failed item to errors.jsonl. The line is in the file when this returns.
  /// `json` is one object. Throws std::invalid_argument if it has a newline.
  void add_error(std::string_view json);

 private:
  std::string path_;
  File errors_;
};

}  // namespace millrace
