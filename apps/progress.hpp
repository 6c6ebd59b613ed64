#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "run/job.hpp"

namespace millrace {

enum class ProgressStyle {
  none,
  line,   ///< one line on a terminal, drawn over twice a second
  plain,  ///< a line every 10 s: logs
};

/// A terminal on stderr gets the line, everything else plain lines.
ProgressStyle progress_style(bool quiet);

/// The text of one line: done, rate, time left and failed, whether the input is waited for, the busiest resource and
/// its largest stage, from the same function as the report's verdict; rate and utilisation are of the time between the
/// samples. Before anything was admitted: "loading" or "waiting for input". `columns` 0: no limit.
std::string progress_line(const ProgressSample& before, const ProgressSample& now, int columns);

/// Decides when which line is due. Time is that of the samples, which may come as often as wished.
class ProgressLines {
 public:
  /// `style` is not `none`.
  explicit ProgressLines(ProgressStyle style) : style_(style) {}

  /// What to write for this sample: with `line` always a line that draws over the one before it, with `plain` one that
  /// ends with a newline for each 10 s since the first sample, else nothing. Rate and utilisation are over the last 10
  /// s, loading left out. `columns` of the terminal, 0: no limit.
  std::string add(ProgressSample now, int columns);

 private:
  const ProgressStyle style_;
  std::deque<ProgressSample> window_;  // the first one is up to 10 s old
  std::int64_t due_ns_ = 0;
};

/// Prints progress to stderr from a thread of its own until it is destroyed.
class Progress {
 public:
  Progress(ProgressStyle style, std::function<ProgressSample()> sample);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

 private:
  void run();

  const ProgressStyle style_;
  const std::function<ProgressSample()> sample_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace millrace
