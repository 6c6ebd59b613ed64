#pragma once

#include <cstdint>
#include <string>

namespace millrace {

/// Marks ranges of time in the domain "millrace", for profilers that read NVTX, such as Nsight Systems.
/// docs/tracing.md describes the ranges.
/// A range has the name of its stage; for a batch, the number of frames follows: "detect [16]".
/// Its payload is the number of the batch, or the number of the frame in the order of admission.
/// Any thread may call the functions. Without a profiler, a call costs a few nanoseconds.
class Trace {
 public:
  Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace();

  /// A range on the calling thread, until the end of the scope. `frames` is 0 for a single frame.
  class Range {
   public:
    Range(const Trace& trace, const std::string& stage, std::int64_t id, std::size_t frames = 0) noexcept;
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
    ~Range();

   private:
    const Trace& trace_;
  };

  /// Begins the range of a batch that waits in the queue before `stage`: "queue: detect [16]".
  /// Pass the result to end(), on any thread.
  [[nodiscard]] std::uint64_t begin_wait(const std::string& stage, std::int64_t id, std::size_t frames) const noexcept;
  /// Begins the range "capture", at which a profiler starts to record; the payload is the number of the frame.
  /// Pass the result to end(), on any thread.
  [[nodiscard]] std::uint64_t begin_capture(std::int64_t frame) const noexcept;
  void end(std::uint64_t range) const noexcept;

 private:
  void* domain_;  // null without a profiler
};

/// Sets the name of the calling thread in the profiler.
void name_thread_in_trace(const std::string& name) noexcept;

}  // namespace millrace
