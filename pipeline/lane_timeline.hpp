#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace millrace {

/// What the lanes did and when, in memory of fixed size. It keeps the first and the last batches of a long run.
/// add() and read() may be called from any thread.
class LaneTimeline {
 public:
  static constexpr std::size_t most = 1024;  ///< batches of either part

  /// A batch in a lane.
  struct Entry {
    std::int64_t batch = 0;
    int lane = 0;
    int group = 0;  ///< GraphBodies::group of its frames
    std::int64_t frames = 0;
  };

  /// A lane runs `stages` stages, one after another.
  explicit LaneTimeline(std::size_t stages, std::size_t most_of_a_part = most);

  /// `moments` has the begin of the first stage, then the end of each stage. Does not allocate.
  void add(const Entry& entry, std::span<const std::int64_t> moments) noexcept;

  /// A copy of what is kept, in the order of add().
  struct Kept {
    std::size_t stages = 0;
    std::vector<Entry> entries;
    std::vector<std::int64_t> moments;  ///< `stages` + 1 for each entry
    /// Batches in the middle that are left out, and the time from the begin of the first to the end of the last one.
    std::int64_t left_out = 0, cut_begun_ns = 0, cut_ended_ns = 0;

    [[nodiscard]] std::span<const std::int64_t> moments_of(std::size_t entry) const {
      return std::span(moments).subspan(entry * (stages + 1), stages + 1);
    }
    /// The last `count` batches, as if they were all. `cut_ended_ns` is the end of the last one that it leaves off;
    /// from then on, the lanes had no other batches. 0: it leaves none off.
    [[nodiscard]] Kept newest(std::size_t count) const;
  };
  [[nodiscard]] Kept read() const;

 private:
  [[nodiscard]] std::size_t place_of(std::int64_t number) const;

  const std::size_t stages_, part_;
  mutable std::mutex mutex_;
  std::int64_t added_ = 0;
  std::vector<Entry> entries_;         // the first part, then a ring
  std::vector<std::int64_t> moments_;  // of the same entries
  std::int64_t cut_begun_ns_ = 0, cut_ended_ns_ = 0;
};

}  // namespace millrace
