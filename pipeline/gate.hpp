#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "pipeline/statistics.hpp"

namespace millrace {

/// The gate between the source and the graph.
/// Credits are numbered. The source takes one for each frame that it admits, and `commit` gives it back.
/// A second limit, `ahead`, bounds how many frames are admitted before they are granted bytes for their pixels.
///
/// While the source runs, the gate holds a reservation for it, so that the graph does not finish.
/// If the source must wait for a credit, the gate drops the reservation.
/// The thread that gives back the missing credit takes the reservation again.
/// That thread is inside the graph, so the graph cannot finish in between.
/// So a lost credit does not hang the run: the run ends and reports the lost frames.
class Gate {
 public:
  /// `credits` is the number of credits. At most `ahead` of them are taken but not settled at a time.
  /// `without_credits` measures how long the source has no credit, and `trace` shows when.
  Gate(int credits, int ahead, Meter& without_credits, const Trace& trace);

  /// Call it before the first take(). `reserve` keeps the graph from finishing, `release` allows it to finish.
  /// Takes the first reservation.
  void open(std::function<void()> reserve, std::function<void()> release);

  /// On the source's thread: waits for a free credit and returns its number.
  /// Returns nothing if the gate is closed, or if it is stopped and this frame would begin a batch.
  [[nodiscard]] std::optional<int> take(bool begins_batch);
  /// On the source's thread: no more credits will be taken.
  void finish();

  /// From inside the graph: a frame was granted the bytes for its pixels.
  void settle();
  /// From inside the graph: the frames with these credits are committed or given up.
  void give_back(std::span<const int> credits);
  /// From any thread: frames begin to wait for bytes of one kind, or none waits for them any more.
  void short_of_bytes(bool is_short);

  void stop();   ///< from any thread: admit no frame that begins a batch
  void close();  ///< from any thread: admit no further frame
  [[nodiscard]] bool stopped() const;
  /// From any thread: the time without credits so far, by what was missing.
  [[nodiscard]] CreditWaits waits() const;

 private:
  enum class State { open, stopped, closed };
  [[nodiscard]] bool has_credit() const { return !free_.empty() && unsettled_ < ahead_; }
  [[nodiscard]] bool refuses(bool begins_batch) const;
  void wake_source();  // call with the lock held, after credits came back
  void look_again();   // call with the lock held, after a change: the source may lack something else now

  const int ahead_;
  Meter& without_credits_;
  const Trace& trace_;
  std::function<void()> reserve_, release_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<int> free_;
  std::int64_t taken_ = 0;  // since the beginning
  int unsettled_ = 0;
  bool waiting_ = false;
  bool reserved_ = false;
  State state_ = State::open;
  int short_of_bytes_ = 0;  // kinds of bytes: of files, of pixels
  CreditWaits waits_;
  std::int64_t CreditWaits::*missing_ = nullptr;  // what the source waits for; null if it does not wait
  std::int64_t since_ns_ = 0;                     // `waits_` has the time until then
};

}  // namespace millrace
