#pragma once

#include <chrono>
#include <cstdint>

namespace millrace {

/// The pipeline's source of time. Tests replace it with a clock that they move by hand.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Returns nanoseconds since an arbitrary start; never runs backwards. Called from any thread.
  [[nodiscard]] virtual std::int64_t now_ns() const noexcept = 0;
};

/// The system's monotonic clock.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] std::int64_t now_ns() const noexcept override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace millrace
