#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "apps/progress.hpp"
#include "io/files/files.hpp"
#include "pipeline/ticker.hpp"

namespace millrace {

/// Writes the events of a run as JSON lines, for other programs: docs/formats_runs.md lists them.
///
/// It never delays the processing of pictures. If the reader of a pipe is slow, up to 1 MiB waits for it, then lines are
/// dropped and counted.
/// A file that cannot be written any more gets no further events, and problem() says why.
/// All functions may be called from any thread.
class EventLog {
 public:
  /// Appends to `file`, which is made if it does not exist.
  /// Throws UsageError for a regular file whose name does not end in .jsonl, for a folder, and for a pipe without a reader.
  /// Throws StorageError if the file cannot be opened.
  explicit EventLog(const std::string& file);
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;
  /// Waits up to a second for the reader of a pipe.
  ~EventLog();

  /// Writes {"event": `name`, "time": UTC, ...} with the members of the object `values`.
  void add(const std::string& name, const nlohmann::json& values);

  /// Adds the event `progress` once a second until end_progress().
  void begin_progress(std::function<ProgressSample()> sample);
  void end_progress();

  /// A sentence for the user if events were lost, otherwise empty.
  std::string problem() const;

 private:
  void put(const std::string& line, bool last);  // the last line always waits for its reader
  void flush();

  const std::string name_;
  int descriptor_ = -1;
  mutable std::mutex mutex_;  // guards all below
  std::string waiting_;       // lines; the first one may lack a part that is written already
  std::int64_t dropped_ = 0, dropped_in_all_ = 0;
  int error_ = 0;  // errno of the write that failed
  ProgressWindow window_;
  std::optional<Ticker> ticker_;  // last: its thread uses the others
};

}  // namespace millrace
