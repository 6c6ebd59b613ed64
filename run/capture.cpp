#include "run/capture.hpp"

#include <charconv>

#include "stages/options.hpp"

namespace millrace {

CaptureSpan parse_capture(const std::string& text) {
  if (text.empty()) return {};
  CaptureSpan span;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, span.first);
  const bool colon = first.ec == std::errc() && first.ptr != end && *first.ptr == ':';
  const auto last = colon ? std::from_chars(first.ptr + 1, end, span.last) : first;
  if (!colon || last.ec != std::errc() || last.ptr != end || span.first < 0 || span.last <= span.first) {
    throw UsageError("trace.capture is '" + text +
                     "'; it must be two numbers of pictures such as 100:200, the second larger than the first");
  }
  return span;
}

// Frames enter on the source's thread and are committed on another. `open_` publishes `range_` to it.
void Capture::enter() noexcept {
  if (span_.last == 0 || entered_++ != span_.first) return;
  if (profiler_.start) profiler_.start();
  range_ = trace_.begin_capture(span_.first);
  open_ = true;
}

void Capture::commit(std::int64_t frames) noexcept {
  committed_ += frames;
  if (committed_ >= span_.last) end();
}

void Capture::end() noexcept {
  // The commit thread and the end of the run may both call it. Only one of them stops the profiler.
  if (!open_.exchange(false)) return;
  trace_.end_capture(range_);
  if (profiler_.stop) profiler_.stop();
}

}  // namespace millrace
