#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "pipeline/run_error.hpp"

namespace millrace {

/// Whether the run continues, and the first error that ended it. Thread-safe.
class RunState {
 public:
  /// `on_end` is called once, by the thread that ends the run.
  explicit RunState(std::function<void()> on_end) : on_end_(std::move(on_end)) {}

  /// The run has ended: nothing more is worked on or committed, and messages inside only flow out.
  [[nodiscard]] bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }

  /// The run is stopping: batches that no lane has begun are given up.
  [[nodiscard]] bool stopping() const noexcept { return stopping_.load(std::memory_order_acquire); }
  void stop() noexcept { stopping_.store(true, std::memory_order_release); }

  /// Ends the run, from any thread. Only the first error is kept.
  void end(const std::string& stage, std::exception_ptr error) {
    {
      const std::lock_guard lock(mutex_);
      if (error_ != nullptr) return;
      error_ = std::move(error);
      stage_ = stage;
    }
    ended_.store(true, std::memory_order_release);
    on_end_();
  }

  /// Handles an exception that a body threw in `stage`.
  /// A RunError ends the run. Anything else goes to `mark`, which marks the frame or batch as failed.
  /// If `mark` throws, the run ends.
  template <class Mark>
  void judge(const std::string& stage, const std::exception_ptr& error, const Mark& mark) {
    try {
      std::rethrow_exception(error);
    } catch (const RunError&) {
      end(stage, error);
    } catch (...) {
      try {
        mark(error);
      } catch (...) {
        end(stage, std::current_exception());
      }
    }
  }

  [[nodiscard]] std::exception_ptr error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  [[nodiscard]] std::string error_stage() const {
    const std::lock_guard lock(mutex_);
    return stage_;
  }

 private:
  const std::function<void()> on_end_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  std::exception_ptr error_;
  std::string stage_;
};

}  // namespace millrace
