#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "base/trace.hpp"

namespace millrace {

/// The frames that a profiler records, counted from 0 as they enter the pipeline in this attempt.
struct CaptureSpan {
  std::int64_t first = 0, last = 0;  ///< `last` is excluded; if both are equal, the span is empty
};

/// Reads "100:200"; "" gives an empty span. Throws UsageError for other text.
CaptureSpan parse_capture(const std::string& text);

/// Starts and stops the recording of profilers. The functions are empty if there is no profiler.
struct Profiler {
  std::function<void()> start{}, stop{};
};

/// Records a span: runs the profiler, and a range called "capture" (docs/tracing.md).
/// Both start before the first frame of the span is read.
/// Both end when `last` frames are committed.
class Capture {
 public:
  Capture(CaptureSpan span, Profiler profiler) : span_(span), profiler_(std::move(profiler)) {}
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() { end(); }

  void enter() noexcept;                      ///< call before each frame is read, always on the same thread
  void commit(std::int64_t frames) noexcept;  ///< call after commits, always on the same thread
  /// Ends the capture if it is open. Any thread may call it.
  void end() noexcept;

 private:
  const CaptureSpan span_;
  const Profiler profiler_;
  const Trace trace_;
  std::int64_t entered_ = 0, committed_ = 0;
  std::atomic<bool> open_{false};
  std::uint64_t range_ = 0;
};

}  // namespace millrace
