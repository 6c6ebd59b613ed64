#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "run/report.hpp"
#include "run/setup.hpp"

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
  Committer(SegmentStore& store, RunFolder& folder, JobListener& listener, const Clock& clock, TraceRecorder* recorder,
            const std::vector<PlannedView>& views);

  /// `texts` are the segment lines by slot.
  void commit(const Batch& batch, std::vector<std::string> texts);

  std::int64_t written_bytes() const { return written_bytes_; }
  std::int64_t failed() const { return failed_; }
  std::vector<ViewCounts> views() const {
    const std::lock_guard lock(mutex_);
    return views_;
  }

 private:
  void fail(const Frame& frame);
  void tell(const Frame& frame);

  SegmentStore& store_;
  RunFolder& folder_;
  JobListener& listener_;
  const Clock& clock_;
  TraceRecorder* const recorder_;
  std::atomic<std::int64_t> written_bytes_{0};
  std::atomic<std::int64_t> failed_{0};  // pictures of this attempt
  mutable std::mutex mutex_;             // guards `views_`
  std::vector<ViewCounts> views_;
};

}  // namespace millrace
