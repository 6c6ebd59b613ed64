#include "pipeline/gate.hpp"

#include <utility>

namespace millrace {

Gate::Gate(int credits, int ahead, Meter& without_credits, const Trace& trace)
    : ahead_(ahead), without_credits_(without_credits), trace_(trace) {
  // Highest number first: take() takes from the back, so the first frame gets credit 0.
  for (int credit = credits; credit-- > 0;) free_.push_back(credit);
}

void Gate::open(std::function<void()> reserve, std::function<void()> release) {
  const std::lock_guard lock(mutex_);
  reserve_ = std::move(reserve);
  release_ = std::move(release);
  reserve_();
  reserved_ = true;
}

// A stop admits the rest of a batch that has begun. Without that rest, the batch would never be complete.
bool Gate::refuses(bool begins_batch) const {
  return state_ == State::closed || (state_ == State::stopped && begins_batch);
}

std::optional<int> Gate::take(bool begins_batch) {
  std::unique_lock lock(mutex_);
  if (!has_credit() && !refuses(begins_batch)) {
    // The lock is held from the check until wait() releases it, so no credit can come back unnoticed in between.
    without_credits_.arrive();
    const auto service = without_credits_.begin();
    Trace::Range range(trace_, without_credits_.name(), taken_);
    waiting_ = true;
    look_again();
    reserved_ = false;
    release_();
    // After a wake-up with a reservation a credit is free: wake_source() saw it, and no other thread takes credits.
    wake_.wait(lock, [&] { return reserved_ || refuses(begins_batch); });
    waiting_ = false;
    look_again();
    range.end(service.begun_ns, without_credits_.end(service, false));
  }
  if (refuses(begins_batch)) return std::nullopt;
  const int credit = free_.back();
  free_.pop_back();
  ++taken_;
  ++unsettled_;
  return credit;
}

void Gate::finish() {
  const std::lock_guard lock(mutex_);
  // A source that was refused while it waited has no reservation.
  if (std::exchange(reserved_, false)) release_();
}

// Runs on a thread inside the graph, so the graph cannot finish before reserve_().
void Gate::wake_source() {
  // One reservation is enough: finish() releases only one.
  if (!waiting_ || reserved_ || !has_credit()) return;
  reserve_();
  reserved_ = true;
  wake_.notify_one();
}

void Gate::settle() {
  const std::lock_guard lock(mutex_);
  // The source may have free credits and still wait, because of `ahead_`.
  --unsettled_;
  look_again();
  wake_source();
}

void Gate::give_back(std::span<const int> credits) {
  const std::lock_guard lock(mutex_);
  free_.insert(free_.end(), credits.begin(), credits.end());
  look_again();
  wake_source();
}

void Gate::short_of_bytes(bool is_short) {
  const std::lock_guard lock(mutex_);
  short_of_bytes_ += is_short ? 1 : -1;
  look_again();
}

void Gate::look_again() {
  const auto now_ns = without_credits_.clock().now_ns();
  if (missing_ != nullptr) waits_.*missing_ += now_ns - since_ns_;
  since_ns_ = now_ns;
  if (!waiting_) {
    missing_ = nullptr;
  } else if (!has_credit()) {  // else the source is about to wake up from its last reason to wait
    missing_ = short_of_bytes_ > 0 ? &CreditWaits::bytes_ns
               : free_.empty()     ? &CreditWaits::frames_ns
                                   : &CreditWaits::read_ahead_ns;
  }
}

CreditWaits Gate::waits() const {
  const std::lock_guard lock(mutex_);
  CreditWaits now = waits_;
  if (missing_ != nullptr) now.*missing_ += without_credits_.clock().now_ns() - since_ns_;
  return now;
}

void Gate::stop() {
  const std::lock_guard lock(mutex_);
  // A stop after close() must not open the gate for the rest of a batch.
  if (state_ == State::open) state_ = State::stopped;
  wake_.notify_one();
}

void Gate::close() {
  const std::lock_guard lock(mutex_);
  state_ = State::closed;
  wake_.notify_one();
}

bool Gate::stopped() const {
  const std::lock_guard lock(mutex_);
  return state_ != State::open;
}

}  // namespace millrace
