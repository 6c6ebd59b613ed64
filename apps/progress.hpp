#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "pipeline/statistics.hpp"

namespace millrace {

/// What the progress line needs at one moment.
struct ProgressSample {
  Snapshot snapshot;
  std::int64_t done = 0;  ///< items finished, those of earlier attempts included
  std::int64_t failed = 0;
  std::int64_t planned = 0;  ///< items known so far
  bool plan_complete = false;
};

enum class ProgressStyle {
  none,
  line,   ///< one line on a terminal, drawn over twice a second
  plain,  ///< a line every 10 s: logs
};

/// A terminal on stderr gets the line, everything else plain lines.
ProgressStyle progress_style(bool quiet);

/// The text of one line: done, rate over the last 10 s, time left, failed, and the stage with the highest utilisation
/// over that window, from the same function as the report's verdict; "loading" while nothing was admitted. `columns`
/// 0: no limit.
std::string progress_line(const ProgressSample& before, const ProgressSample& now, int columns);

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
