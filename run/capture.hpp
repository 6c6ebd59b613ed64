#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "base/trace.hpp"

namespace millrace {

/// Frames that a profiler is to look at, counted from 0 as they enter the pipeline in this attempt.
struct CaptureSpan {
  std::int64_t first = 0, last = 0;  ///< last is not one of them; equal: none
};

/// Reads "100:200"; "" is none. Throws UsageError.
CaptureSpan parse_capture(const std::string& text);

/// Tells profilers to record, and to stop; empty where there are none to tell.
struct Profiler {
  std::function<void()> start{}, stop{};
};

/// Brackets a span: profilers of CUDA are started before its first frame is read and stopped when as many frames as
/// come before its end are committed, and so does a range called "capture" begin and end (docs/tracing.md).
class Capture {
 public:
  Capture(CaptureSpan span, Profiler profiler) : span_(span), profiler_(std::move(profiler)) {}
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() { end(); }

  void enter() noexcept;                      ///< a frame is about to; one thread
  void commit(std::int64_t frames) noexcept;  ///< so many more are; one thread
  /// Where it has not ended yet.
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
