#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "pipeline/statistics.hpp"

namespace millrace {

/// The one gate between the source and the graph. A credit is a numbered place; the source takes one for each frame it
/// admits, `commit` gives it back. A second count bounds how far admission runs ahead of the grants of bytes.
///
/// The gate holds the source's claim that the graph is not finished ("reservation") for it. While the source has no
/// credit the claim is dropped, and whoever gives back the credit it waits for takes it again on its behalf (the giver
/// is inside the graph, so the graph cannot finish in between). So a credit that gets lost ends the run, in which the
/// lost frames are then found, and does not hang it.
class Gate {
 public:
  /// `places` credits; at most `ahead` places taken but not settled.
  Gate(int places, int ahead, Meter& without_credits);

  /// Before the first take: `reserve` and `release` keep the graph from finishing and let it finish. Takes the claim.
  void open(std::function<void()> reserve, std::function<void()> release);

  /// Source thread: a free place, as soon as there is one; nothing when the gate was closed, or was stopped and this
  /// frame would begin a batch.
  [[nodiscard]] std::optional<int> take(bool begins_batch);
  /// Source thread: nothing more will be taken.
  void finish();

  /// From inside the graph: the frame in a place was granted its bytes.
  void settle();
  /// From inside the graph: the frames of these places are committed.
  void give_back(std::span<const int> places);

  void stop();   ///< from any thread: begin no further batch
  void close();  ///< from any thread: admit no further frame
  [[nodiscard]] bool stopped() const;

 private:
  enum class State { open, stopped, closed };
  [[nodiscard]] bool has_credit() const { return !free_.empty() && unsettled_ < ahead_; }
  [[nodiscard]] bool refuses(bool begins_batch) const;
  void wake_source();  // with the lock held, after credits came back

  const int ahead_;
  Meter& without_credits_;
  std::function<void()> reserve_, release_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<int> free_;
  int unsettled_ = 0;
  bool waiting_ = false;
  bool reserved_ = false;
  State state_ = State::open;
};

}  // namespace millrace
