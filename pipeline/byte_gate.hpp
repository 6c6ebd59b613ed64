#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "pipeline/statistics.hpp"

namespace millrace {

/// Takes back the bytes of a ByteCredit.
class ByteBudget {
 public:
  virtual ~ByteBudget() = default;
  /// Called from any thread.
  virtual void give_back(std::int64_t bytes) noexcept = 0;
};

/// The right to hold a number of bytes, e.g. of decoded pixels.
/// Keep it with the pixels and release both together, before the commit of the frame's batch returns.
/// Any thread may release it. The credit keeps its budget alive, even after the graph is destroyed.
class ByteCredit {
 public:
  ByteCredit() = default;
  ByteCredit(std::shared_ptr<ByteBudget> budget, std::int64_t bytes) : budget_(std::move(budget)), bytes_(bytes) {}
  ByteCredit(ByteCredit&& other) noexcept : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
  ByteCredit& operator=(ByteCredit&& other) noexcept {
    release();
    budget_ = std::move(other.budget_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ByteCredit(const ByteCredit&) = delete;
  ByteCredit& operator=(const ByteCredit&) = delete;
  ~ByteCredit() { release(); }

  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  /// Gives the bytes back now, instead of in the destructor.
  void release() noexcept {
    const auto budget = std::move(budget_);
    budget_ = nullptr;
    if (budget != nullptr && bytes_ > 0) budget->give_back(std::exchange(bytes_, 0));
  }

 private:
  std::shared_ptr<ByteBudget> budget_;
  std::int64_t bytes_ = 0;
};

/// The bytes that a message asks for.
struct ByteNeed {
  ByteNeed(std::int64_t to_keep, std::int64_t to_pass = 0) : kept(to_keep), passing(to_pass) {}
  std::int64_t kept;     ///< held for long, e.g. decoded pixels
  std::int64_t passing;  ///< given back soon, even while others wait, e.g. memory that only decoding needs
};

/// Grants bytes to messages in the order of admission.
/// Messages arrive in any order, each with its sequence number (0, 1, 2, ..., without gaps) and its need.
/// The next in sequence passes as soon as its bytes are free.
///
/// Kept bytes never exceed the budget: a message waits until its kept bytes are free.
/// So no message may need more kept bytes than the budget has.
/// Passing bytes may exceed it. If only they are missing, a message still passes while no other holds passing bytes.
/// So messages hold at most the budget plus the passing bytes of one message.
///
/// Strict order leaves some of the budget unused, but it cannot deadlock:
/// - Messages that hold bytes are older than messages that wait.
/// - Passing bytes come back by themselves.
/// - Kept bytes belong to batches that can be completed, because the budget is enough for a whole batch.
///
/// Construct it with std::make_shared, because credits keep it alive.
template <class Message>
class ByteGate final : public ByteBudget, public std::enable_shared_from_this<ByteGate<Message>> {
 public:
  /// `pass` gets each message with its credits, outside any lock, on the thread whose call made it pass.
  /// `waiting` counts the messages that wait for bytes, until the gate is closed.
  /// It does not count messages that only wait for an older one to arrive.
  /// `changed` hears when messages begin to wait for bytes, and when none waits any more. It must not call the gate.
  ByteGate(std::int64_t budget, Meter& waiting, std::function<void(Message, ByteCredit kept, ByteCredit passing)> pass,
           std::function<void(bool waits)> changed = {})
      : free_(budget), meter_(waiting), pass_(std::move(pass)), changed_(std::move(changed)) {}

  /// From any thread: adds a message. `pass` may run in this call, also for other messages.
  void offer(std::int64_t sequence, Message message, ByteNeed need) {
    {
      const std::lock_guard lock(mutex_);
      const auto index = static_cast<std::size_t>(sequence - next_);
      if (waiting_.size() <= index) waiting_.resize(index + 1);
      waiting_[index].emplace(std::move(message), need);
      ++arrived_;
    }
    pass_on();
  }

  void give_back(std::int64_t bytes) noexcept override { take_back({bytes, 0}); }

  /// After the run: stops granting, drops the messages that wait, and returns when no `pass` is running.
  void close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    idle_.wait(lock, [&] { return being_passed_ == 0; });
    waiting_.clear();
    arrived_ = 0;
    count();
  }

 private:
  struct Passing final : ByteBudget {
    explicit Passing(ByteGate& of) : gate(of) {}
    void give_back(std::int64_t bytes) noexcept override { gate.take_back({0, bytes}); }
    ByteGate& gate;
  };

  void take_back(const ByteNeed& need) noexcept {
    {
      const std::lock_guard lock(mutex_);
      free_ += need.kept + need.passing;
      passing_out_ -= need.passing;
    }
    pass_on();
  }

  [[nodiscard]] bool may_pass(const ByteNeed& need) const {
    return need.kept <= free_ && (need.passing <= free_ - need.kept || passing_out_ == 0);
  }

  /// Call with the lock held.
  /// Messages wait for bytes only while the next in sequence has arrived and may not pass.
  void count() noexcept {
    const bool short_of_bytes = !waiting_.empty() && waiting_.front() && !may_pass(waiting_.front()->second);
    const int now = short_of_bytes ? arrived_ : 0;
    if (now > counted_) meter_.arrive(now - counted_);
    if (now < counted_) meter_.leave(counted_ - now);
    const bool waited = std::exchange(counted_, now) > 0;
    if (changed_ && waited != (now > 0)) changed_(now > 0);
  }

  void pass_on() noexcept {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (closed_) return;
      if (waiting_.empty() || !waiting_.front() || !may_pass(waiting_.front()->second)) return count();
      auto [message, need] = std::move(*waiting_.front());
      waiting_.pop_front();
      --arrived_;
      ++next_;
      free_ -= need.kept + need.passing;
      passing_out_ += need.passing;
      ++being_passed_;
      count();
      lock.unlock();  // `pass` may give back bytes that the frame held before, which takes the lock again
      const auto self = this->shared_from_this();
      pass_(std::move(message), ByteCredit(self, need.kept),
            ByteCredit(std::shared_ptr<ByteBudget>(self, &passing_), need.passing));
      lock.lock();
      if (--being_passed_ == 0) idle_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable idle_;
  Passing passing_{*this};
  std::int64_t free_;  // negative while passing bytes exceed the budget
  std::int64_t passing_out_ = 0;
  std::int64_t next_ = 0;  // sequence number of waiting_.front()
  std::deque<std::optional<std::pair<Message, ByteNeed>>> waiting_;
  int arrived_ = 0;  // messages in waiting_
  int counted_ = 0;  // messages that wait for bytes, as the meter counts them
  Meter& meter_;
  std::function<void(Message, ByteCredit, ByteCredit)> pass_;
  std::function<void(bool)> changed_;
  int being_passed_ = 0;
  bool closed_ = false;
};

}  // namespace millrace
