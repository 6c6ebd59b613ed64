#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace millrace {

/// Where bytes go back to.
class ByteBudget {
 public:
  virtual ~ByteBudget() = default;
  virtual void give_back(std::int64_t bytes) noexcept = 0;
};

/// The right to hold a number of bytes of decoded pixels. Keep it beside the pixels and let go of it with them, on any
/// thread, but before the commit of the frame's batch returns. The budget outlives the graph where it has to.
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
  /// Gives the bytes back now.
  void release() noexcept {
    const auto budget = std::move(budget_);
    budget_ = nullptr;
    if (budget != nullptr) budget->give_back(std::exchange(bytes_, 0));
  }

 private:
  std::shared_ptr<ByteBudget> budget_;
  std::int64_t bytes_ = 0;
};

/// Grants bytes in the order of admission. Messages arrive in any order, each with its sequence number (0, 1, 2, ...,
/// without gaps) and the bytes it is going to hold; the next in sequence passes once its bytes are free.
///
/// Strict order wastes some of the budget and cannot deadlock: what holds bytes is older than what waits, belongs to
/// batches that can be completed with the budget of two batches, and gives its bytes back on its way.
template <class Message>
class ByteGate final : public ByteBudget, public std::enable_shared_from_this<ByteGate<Message>> {
 public:
  /// `pass` gets each message with its credit, outside any lock, from the thread that made it pass.
  ByteGate(std::int64_t budget, std::function<void(Message, ByteCredit)> pass)
      : free_(budget), pass_(std::move(pass)) {}

  void offer(std::int64_t sequence, Message message, std::int64_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      const auto place = static_cast<std::size_t>(sequence - next_);
      if (waiting_.size() <= place) waiting_.resize(place + 1);
      waiting_[place].emplace(std::move(message), bytes);
    }
    pass_on();
  }

  void give_back(std::int64_t bytes) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      free_ += bytes;
    }
    pass_on();
  }

  /// After the run: nothing passes any more; returns when nothing is passing.
  void close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    idle_.wait(lock, [&] { return passing_ == 0; });
    waiting_.clear();
  }

 private:
  void pass_on() noexcept {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (closed_ || waiting_.empty() || !waiting_.front() || waiting_.front()->second > free_) return;
      auto [message, bytes] = std::move(*waiting_.front());
      waiting_.pop_front();
      ++next_;
      free_ -= bytes;
      ++passing_;
      lock.unlock();  // passing a frame may give back bytes it held before
      pass_(std::move(message), ByteCredit(this->shared_from_this(), bytes));
      lock.lock();
      if (--passing_ == 0) idle_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable idle_;
  std::int64_t free_;
  std::int64_t next_ = 0;  // sequence number of waiting_.front()
  std::deque<std::optional<std::pair<Message, std::int64_t>>> waiting_;
  std::function<void(Message, ByteCredit)> pass_;
  int passing_ = 0;
  bool closed_ = false;
};

}  // namespace millrace
