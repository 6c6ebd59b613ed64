#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "pipeline/ticker.hpp"
#include "run/job.hpp"

namespace millrace {

enum class ProgressStyle {
  none,
  line,   ///< one line on a terminal, drawn over twice a second
  plain,  ///< a line every 10 s: logs
};

/// `line` if stderr is a terminal, else `plain`; `none` if `quiet`.
ProgressStyle progress_style(bool quiet);

/// The figures of a run between two samples.
struct ProgressFigures {
  double pictures_per_s = 0;
  std::optional<double> windows_per_s;  ///< only of a run that has begun with windows
  std::optional<double> left_s;         ///< unknown before the end of the scan, and while nothing is finished
  Verdict verdict;                      ///< judge() names the busiest resource, as for the report
};
ProgressFigures figures_of(const ProgressSample& before, const ProgressSample& now);
/// They as an event and as /status.json have them; docs/formats_runs.md lists the keys. Unknown values are null.
nlohmann::json to_json(const ProgressSample& before, const ProgressSample& now);

/// The samples of the last 10 s and the one before them, without the time before the first item.
class ProgressWindow {
 public:
  /// Adds a sample and returns the first one of the window.
  const ProgressSample& add(ProgressSample now);

 private:
  std::deque<ProgressSample> samples_;  // oldest first
};

/// The text of one line, without a newline and cut to `columns` bytes (0: no limit).
///
/// - Done, planned, rate, time left and failed items. The rate covers the time between the two samples.
/// - Of pictures that are computed in windows now: done and all windows, and their rate. The time left follows from it.
/// - The share of the time in which the source waited for input, if that is the bottleneck.
/// - The busiest resource with its utilisation, and its largest stage. judge() names them, as for the report.
/// - Before the first item is admitted, only "loading" or "waiting for input".
std::string progress_line(const ProgressSample& before, const ProgressSample& now, int columns);

/// Decides which line is due when. It reads the time from the samples; they may come at any interval.
class ProgressLines {
 public:
  explicit ProgressLines(ProgressStyle style) : style_(style) {}

  /// The text to write after this sample.
  ///
  /// - Style `line`: always a line, which draws over the previous one.
  /// - Style `plain`: a line with a newline every 10 s, else nothing. After a longer pause it is one line, not several.
  ///
  /// Rate and utilisation cover the last 10 s, but not the time before the first item.
  /// `columns` of the terminal, 0: no limit.
  std::string add(ProgressSample now, int columns);

 private:
  const ProgressStyle style_;
  ProgressWindow window_;
  std::optional<std::int64_t> due_ns_;  // of the next line, in style `plain`
};

/// Prints progress to stderr from a thread of its own, twice a second, until it is destroyed.
class Progress {
 public:
  /// That thread calls `sample`.
  Progress(ProgressStyle style, std::function<ProgressSample()> sample);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

 private:
  void write();

  const ProgressStyle style_;
  const std::function<ProgressSample()> sample_;
  ProgressLines lines_;
  std::optional<Ticker> ticker_;
};

}  // namespace millrace
