#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pipeline/in_flight.hpp"
#include "pipeline/run_error.hpp"

namespace millrace {

/// Collects the frames of each planned batch until the batch is complete. Used by one thread at a time.
template <class Frame>
class Batcher {
 public:
  /// Puts a frame into its slot.
  /// Returns all frames of its batch, ordered by slot, if this was the last one; otherwise an empty vector.
  /// Throws RunError if the slot is taken or the frames of a batch disagree on its size: then the plan is wrong.
  std::vector<FrameInFlight<Frame>*> add(FrameInFlight<Frame>& arrived) {
    auto& batch = open_[arrived.batch_id];
    const auto size = static_cast<std::size_t>(arrived.frame->batch_size());
    const auto slot = static_cast<std::size_t>(arrived.frame->slot());
    if (batch.slots.empty()) batch.slots.resize(size);
    if (batch.slots.size() != size || batch.slots[slot] != nullptr) {
      throw RunError("batch", "batch " + std::to_string(arrived.batch_id) + " has slot " + std::to_string(slot) +
                                  " of " + std::to_string(size) +
                                  " twice, or its frames disagree on its size; the plan is damaged");
    }
    batch.slots[slot] = &arrived;
    if (++batch.filled < size) return {};
    auto complete = std::move(batch.slots);
    open_.erase(arrived.batch_id);
    return complete;
  }

 private:
  struct Open {
    std::vector<FrameInFlight<Frame>*> slots;
    std::size_t filled = 0;
  };
  std::unordered_map<std::int64_t, Open> open_;
};

}  // namespace millrace
