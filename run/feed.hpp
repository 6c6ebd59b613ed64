#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "io/results/plan.hpp"
#include "io/results/segments.hpp"
#include "stages/batch.hpp"

namespace millrace {

/// Makes the frames of a plan in plan order: segment by segment, batch by batch.
/// Skips batches that an earlier attempt finished. Not thread-safe.
class Feed {
 public:
  Feed(Plan& plan, SegmentStore& store, int batch_size) : plan_(plan), store_(store), batch_size_(batch_size) {}

  /// The next frame, or null at the end of the plan. Waits for the scan while it makes the plan.
  /// Throws as Plan::next_segment().
  std::shared_ptr<Frame> next();
  /// Whether next() would return null. Waits and throws like it.
  bool at_end();

 private:
  bool open_segment();

  Plan& plan_;
  SegmentStore& store_;
  const int batch_size_;
  std::deque<std::shared_ptr<Frame>> frames_;  // the remaining frames of the open segment
  std::int64_t next_batch_ = 0;
};

}  // namespace millrace
