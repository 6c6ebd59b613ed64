#include "run/feed.hpp"

#include <utility>

namespace millrace {

bool Feed::at_end() {
  while (frames_.empty()) {
    if (!open_segment()) return true;
  }
  return false;
}

std::shared_ptr<Frame> Feed::next() {
  if (at_end()) return nullptr;
  auto frame = std::move(frames_.front());
  frames_.pop_front();
  return frame;
}

bool Feed::open_segment() {
  std::optional<PlannedSegment> segment = plan_.next_segment();
  if (!segment) return false;
  // Throws if the finished segment was made of other items than the plan has.
  if (store_.segment_done(segment->index, segment->sha256)) return true;
  std::vector<std::int64_t> ids;
  ids.reserve(segment->items.size());
  for (const auto& item : segment->items) ids.push_back(item.id);
  // Batches are cut from all items of the segment, also from finished ones.
  // So a resumed run computes the same pictures together as an uninterrupted run.
  const std::vector<std::vector<int>> batches = cut_batches(segment->items, batch_size_);
  const std::vector<char> done = store_.open_segment(segment->index, ids, batches, segment->sha256);
  for (std::size_t b = 0; b < batches.size(); ++b) {
    const auto size = static_cast<int>(batches[b].size());
    if (done[b] != 0) continue;
    const std::int64_t id = next_batch_++;
    for (int slot = 0; slot < size; ++slot) {
      Item& item = segment->items[static_cast<std::size_t>(batches[b][static_cast<std::size_t>(slot)])];
      frames_.push_back(
          std::make_shared<Frame>(std::move(item), PlanPosition{id, slot, size, segment->index, static_cast<int>(b)}));
    }
  }
  return true;
}

}  // namespace millrace
