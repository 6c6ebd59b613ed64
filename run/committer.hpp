#pragma once

#include <cstdint>
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
/// The graph calls commit() on one thread. The counts are read after the run, so they need no lock.
class Committer {
 public:
  /// `recorder` gets the failed pictures; null: none.
  Committer(SegmentStore& store, RunFolder& folder, JobListener& listener, const Clock& clock, TraceRecorder* recorder,
            const std::vector<PlannedView>& views);

  /// `texts` are the segment lines by slot.
  void commit(const Batch& batch, std::vector<std::string> texts);

  std::int64_t written_bytes() const { return written_bytes_; }
  std::int64_t failed() const { return failed_; }
  const std::vector<ViewCounts>& views() const { return views_; }

 private:
  void fail(const Frame& frame);
  void tell(const Frame& frame);

  SegmentStore& store_;
  RunFolder& folder_;
  JobListener& listener_;
  const Clock& clock_;
  TraceRecorder* const recorder_;
  std::int64_t written_bytes_ = 0;
  std::int64_t failed_ = 0;  // pictures of this attempt
  std::vector<ViewCounts> views_;
};

}  // namespace millrace
