#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/cache.hpp"
#include "models/engine.hpp"

namespace millrace {

class TraceRecorder;

/// How busy models keep a device: the sum of the times that their calls take when nothing else runs there.
/// Times measured during a run would be too long, since lanes wait for each other on the device.
/// Thread-safe.
class Demand {
 public:
  /// Seconds of a call when nothing else runs on the device.
  struct Alone {
    double seconds = 0;         ///< of the device, for the kernels alone: it never waits for a launch
    double launch_seconds = 0;  ///< of the calling thread, to launch them
  };
  /// Records the times of a call for `rows` pictures (or boxes of a decoder).
  void measured(const Package& package, std::string_view method, std::int64_t rows, const Alone& alone);

  /// A call that was counted.
  struct Call {
    const std::string* part;  ///< Method::part; lives as long as this object
    std::int64_t alone_ns;    ///< the time that it takes when nothing else runs on the device
  };
  /// Counts one call. If `rows` was not measured, the time is that of the nearest measured rows, in proportion.
  /// Calls of a method that was never measured do not count.
  std::optional<Call> count(const Package& package, const Method& method, std::int64_t rows);

  /// Sums since the beginning, for one Method::part.
  struct Part {
    std::string name;                         ///< "detector", "encoder", "decoder"
    std::int64_t busy_ns = 0, launch_ns = 0;  ///< sums of Alone
    std::int64_t calls = 0;
  };
  [[nodiscard]] std::vector<Part> parts() const;

 private:
  using Key = std::pair<std::string, std::string>;  // Package::id(), method
  mutable std::mutex mutex_;
  std::map<Key, std::map<std::int64_t, Alone>> alone_;  // by rows
  std::map<std::string, Part> parts_;                   // by Method::part
};

/// An engine that forwards to `engine` and counts its calls in `demand`.
/// `recorder` gets each call that counts; null: none. Its last visit() must come before the end of `demand`.
std::shared_ptr<Engine> counted(std::shared_ptr<Engine> engine, const Package& package, std::shared_ptr<Demand> demand,
                                TraceRecorder* recorder);

/// Times every method of a package with its `rows`, and records the times in `demand`.
/// A time is the median of `repeats` calls after a warm-up call, by the clock of the device's stream. Times of launches
/// come from the clock of the host. The device idles while the host launches, so that its time has no gaps.
/// Nothing else may run on the device. Records nothing if the device has no stream or no clock.
/// `now_ns` is the clock of the host.
void measure_alone(Engine& engine, const Package& package, const MethodRows& rows, int repeats, Device& device,
                   Demand& demand, const ModelCache::Clock& now_ns = ModelCache::steady_clock_ns);

}  // namespace millrace
