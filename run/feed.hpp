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

/// Hands out the frames of a plan in its order: segment by segment, batch by batch, without those an earlier attempt
/// finished.
class Feed {
 public:
  Feed(Plan& plan, SegmentStore& store, int batch_size) : plan_(plan), store_(store), batch_size_(batch_size) {}

  /// The next frame, or null at the plan's end. Waits while the plan is being made.
  std::shared_ptr<Frame> next();

 private:
  bool open_segment();

  Plan& plan_;
  SegmentStore& store_;
  const int batch_size_;
  std::deque<std::shared_ptr<Frame>> frames_;  // of the open segment, still to come
  std::int64_t next_batch_ = 0;
};

}  // namespace millrace
