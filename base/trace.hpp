#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

class TraceRecorder;

/// Marks work and waits, for two readers: docs/tracing.md describes what they see.
/// - profilers that read NVTX, such as Nsight Systems, get ranges in the domain "millrace"
/// - a TraceRecorder, if there is one, gets events with the times of the meters, so they add up to the report's figures
///
/// A range has the name of its stage; in NVTX, the number of frames follows for a batch: "detect [16]".
/// Its number is that of the batch, or that of the frame in the order of admission.
/// Any thread may call the functions. Without a profiler and a recorder, a call costs a few nanoseconds.
class Trace {
 public:
  /// The recorder must outlive the trace. Names of stages must outlive the recorder's last visit().
  explicit Trace(TraceRecorder* recorder = nullptr);
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace();

  [[nodiscard]] bool records() const noexcept { return recorder_ != nullptr; }

  /// A range on the calling thread. `frames` is 0 for a single frame.
  class Range {
   public:
    Range(const Trace& trace, const std::string& stage, std::int64_t number, std::size_t frames = 0) noexcept;
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
    ~Range();

    /// Ends the range. The recorder gets these times. `file` is that of a frame.
    void end(std::int64_t begun_ns, std::int64_t ended_ns, std::string_view file = {}) noexcept;

   private:
    const Trace& trace_;
    const std::string& stage_;
    const std::int64_t number_;
    const std::size_t frames_;
    bool open_;
  };

  /// A batch waits in the queue before a stage.
  struct Wait {
    const std::string* stage = nullptr;  // null: it waits nowhere
    std::int64_t number = 0;
    std::size_t frames = 0;
    std::int64_t begun_ns = 0;
    std::uint64_t range = 0;
  };
  /// Begins the range "queue: detect [16]". Pass the result to end_wait(), on any thread.
  [[nodiscard]] Wait begin_wait(const std::string& stage, std::int64_t number, std::size_t frames,
                                std::int64_t begun_ns) const noexcept;
  /// Ends the wait, if there is one.
  void end_wait(Wait& wait, std::int64_t ended_ns) const noexcept;

  /// From `time_ns` on, `length` items wait for `stage`. NVTX has no such thing.
  void queue(const std::string& stage, std::int64_t length, std::int64_t time_ns) const noexcept;
  /// From `time_ns` on, `frames` frames are committed. NVTX has no such thing.
  void committed(std::int64_t frames, std::int64_t time_ns) const noexcept;

  /// Begins the range "capture", at which a profiler starts to record; the number is that of the frame.
  /// Pass the result to end_capture(), on any thread.
  [[nodiscard]] std::uint64_t begin_capture(std::int64_t frame) const noexcept;
  void end_capture(std::uint64_t range) const noexcept;

 private:
  void* domain_;  // null without a profiler
  TraceRecorder* const recorder_;
};

/// Sets the name of the calling thread in the profiler.
void name_thread_in_trace(const std::string& name) noexcept;

}  // namespace millrace
