#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace millrace {

/// Time that threads spent on cores and waiting for one, since an arbitrary start. `to - from` describes a span.
struct CoreTime {
  std::int64_t on_core_ns = 0;       ///< of the calling thread
  std::int64_t waiting_ns = 0;       ///< of the calling thread: it could have run, but others had the cores
  std::int64_t team_on_core_ns = 0;  ///< of the threads that work for it, summed
  std::int64_t team_waiting_ns = 0;  ///< likewise
};
[[nodiscard]] constexpr CoreTime operator-(const CoreTime& to, const CoreTime& from) {
  return {to.on_core_ns - from.on_core_ns, to.waiting_ns - from.waiting_ns, to.team_on_core_ns - from.team_on_core_ns,
          to.team_waiting_ns - from.team_waiting_ns};
}

/// Times of the machine since an arbitrary start. Those of cores are about the cores that the process may use, with all
/// programs on them.
/// A time that the system does not provide is empty.
struct MachineTime {
  int cores = 0;  ///< that the affinity of the process allows; a quota can allow less of their time
  std::optional<std::int64_t> busy_ns;          ///< programs ran, summed over cores
  std::optional<std::int64_t> stolen_ns;        ///< the hypervisor ran other guests, summed over cores
  std::optional<std::int64_t> throttled_ns;     ///< a CPU quota stopped the process
  std::optional<std::int64_t> cpu_stall_ns;     ///< some thread of the machine waited for a core
  std::optional<std::int64_t> memory_stall_ns;  ///< some thread of the machine waited for memory (swapping, reclaim)
  std::optional<std::int64_t> io_stall_ns;      ///< some thread of the machine waited for a disk
  std::optional<std::int64_t> gpu_heat_ns{};    ///< a GPU of the run had a lower clock, because it was hot
  std::optional<std::int64_t> gpu_power_ns{};   ///< a GPU of the run had a lower clock, to stay under its power limit
};

/// The pipeline's source of times. Tests replace it with a clock that they move by hand.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Returns nanoseconds since an arbitrary start; never runs backwards. Called from any thread.
  [[nodiscard]] virtual std::int64_t now_ns() const noexcept = 0;
  /// Returns the times of the calling thread and its team; nothing if the system does not provide them.
  [[nodiscard]] virtual std::optional<CoreTime> core_time() const noexcept { return std::nullopt; }
  /// From now on, the team of the calling thread are the threads that it has started, or starts later.
  virtual void adopt_team() const noexcept {}
  [[nodiscard]] virtual MachineTime machine_time() const { return {}; }
  /// Whether the pipeline measures itself; the answer never changes. Otherwise it only counts frames.
  [[nodiscard]] virtual bool measures() const noexcept { return true; }
};

/// Times of a monotonic clock alone.
class SteadyClock : public Clock {
 public:
  [[nodiscard]] std::int64_t now_ns() const noexcept override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

/// For runs that measure nothing, to find out what measuring costs.
class UnmeasuredClock final : public SteadyClock {
 public:
  [[nodiscard]] bool measures() const noexcept override { return false; }
};

}  // namespace millrace
