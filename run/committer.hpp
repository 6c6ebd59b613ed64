#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "stages/batch.hpp"

namespace millrace {

class Clock;
class JobListener;
class RunFolder;
class SegmentStore;
class TraceRecorder;

/// Takes finished batches: writes lines into segments, and failed pictures into errors.jsonl and to the listener.
/// The graph calls commit() on one thread. Any thread may read the counts.
class Committer {
 public:
  /// `recorder` gets the failed pictures; null: none.
  Committer(SegmentStore& store, RunFolder& folder, JobListener& listener, const Clock& clock, TraceRecorder* recorder)
      : store_(store), folder_(folder), listener_(listener), clock_(clock), recorder_(recorder) {}

  /// `texts` are the lines by slot.
  void commit(const Batch& batch, std::vector<std::string> texts);

  std::int64_t written_bytes() const { return written_bytes_; }
  std::int64_t failed() const { return failed_; }

 private:
  void tell(const Frame& frame);

  SegmentStore& store_;
  RunFolder& folder_;
  JobListener& listener_;
  const Clock& clock_;
  TraceRecorder* const recorder_;
  std::atomic<std::int64_t> written_bytes_{0};
  std::atomic<std::int64_t> failed_{0};  // pictures of this attempt
};

}  // namespace millrace
