#pragma once

#include <cstdint>
#include <string>

namespace millrace {

/// Ranges for profilers that read NVTX, such as Nsight Systems (docs/tracing.md), in the domain "millrace". Without a
/// profiler a call costs a few nanoseconds. Ranges are named after their stage and, of a batch, how many frames it has,
/// "detect [16]"; their payload is the batch's number, or the frame's in plan order.
class Trace {
 public:
  Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace();

  /// What the calling thread does from here to the end of the scope.
  class Range {
   public:
    Range(const Trace& trace, const std::string& stage, std::int64_t id, std::size_t frames = 0) noexcept;
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
    ~Range();

   private:
    const Trace& trace_;
  };

  /// A batch begins to wait in the queue before `stage`, "queue: detect [16]". Returns what end() takes, on any thread.
  [[nodiscard]] std::uint64_t begin_wait(const std::string& stage, std::int64_t id, std::size_t frames) const noexcept;
  /// A profiler is to look from here on, at this frame: "capture".
  [[nodiscard]] std::uint64_t begin_capture(std::int64_t frame) const noexcept;
  void end(std::uint64_t range) const noexcept;

 private:
  void* domain_;  // null: no profiler
};

/// Names the calling thread in the profiler.
void name_thread_in_trace(const std::string& name) noexcept;

}  // namespace millrace
