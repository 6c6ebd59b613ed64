#include "pipeline/lane_timeline.hpp"

#include <algorithm>

namespace millrace {

LaneTimeline::LaneTimeline(std::size_t stages, std::size_t most_of_a_part)
    : stages_(stages), part_(most_of_a_part), entries_(2 * part_), moments_(2 * part_ * (stages + 1)) {}

std::size_t LaneTimeline::place_of(std::int64_t number) const {
  const auto at = static_cast<std::size_t>(number);
  return at < part_ ? at : part_ + (at - part_) % part_;
}

void LaneTimeline::add(const Entry& entry, std::span<const std::int64_t> moments) noexcept {
  const std::lock_guard lock(mutex_);
  const std::size_t place = place_of(added_);
  const auto kept = std::span(moments_).subspan(place * (stages_ + 1), stages_ + 1);
  if (added_ >= static_cast<std::int64_t>(2 * part_)) {
    const bool first = added_ == static_cast<std::int64_t>(2 * part_);
    cut_begun_ns_ = first ? kept.front() : std::min(cut_begun_ns_, kept.front());
    cut_ended_ns_ = first ? kept.back() : std::max(cut_ended_ns_, kept.back());
  }
  entries_[place] = entry;
  std::copy_n(moments.begin(), std::min(moments.size(), kept.size()), kept.begin());
  ++added_;
}

LaneTimeline::Kept LaneTimeline::read() const {
  const std::lock_guard lock(mutex_);
  const auto all = static_cast<std::int64_t>(2 * part_);
  Kept kept{stages_, {}, {}, std::max<std::int64_t>(added_ - all, 0), cut_begun_ns_, cut_ended_ns_};
  for (std::int64_t i = 0; i < added_; ++i) {
    if (i == static_cast<std::int64_t>(part_)) i += kept.left_out;
    const std::size_t place = place_of(i);
    kept.entries.push_back(entries_[place]);
    const auto moments = std::span(moments_).subspan(place * (stages_ + 1), stages_ + 1);
    kept.moments.insert(kept.moments.end(), moments.begin(), moments.end());
  }
  return kept;
}

LaneTimeline::Kept LaneTimeline::Kept::newest(std::size_t count) const {
  const auto left_off = static_cast<std::ptrdiff_t>(entries.size() - std::min(count, entries.size()));
  Kept last;
  last.stages = stages;
  last.entries.assign(entries.begin() + left_off, entries.end());
  last.moments.assign(moments.begin() + left_off * static_cast<std::ptrdiff_t>(stages + 1), moments.end());
  if (left_off > 0) last.cut_ended_ns = cut_ended_ns;
  for (std::size_t i = 0; i < static_cast<std::size_t>(left_off); ++i)
    last.cut_ended_ns = std::max(last.cut_ended_ns, moments_of(i).back());
  return last;
}

}  // namespace millrace
