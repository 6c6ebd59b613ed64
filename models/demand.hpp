#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/engine.hpp"

namespace millrace {

/// How busy models keep a device: the time that their calls take when nothing else runs there, summed up. Times
/// measured inside a run would not do: lanes wait for each other in them. Thread-safe.
class Demand {
 public:
  /// A call for `rows` pictures, or boxes of a decoder, took this long alone.
  void measured(const Package& package, std::string_view method, std::int64_t rows, double seconds);

  /// A call is made. Of rows that were not measured it counts in proportion to the nearest that were; of a method that
  /// was not measured at all, nothing.
  void count(const Package& package, const Method& method, std::int64_t rows);

  /// Nanoseconds and calls since the beginning of what methods are part of: detector, encoder, decoder.
  struct Part {
    std::string name;
    std::int64_t busy_ns = 0;
    std::int64_t calls = 0;
  };
  [[nodiscard]] std::vector<Part> parts() const;

 private:
  using Key = std::pair<std::string, std::string>;  // Package::id(), method
  mutable std::mutex mutex_;
  std::map<Key, std::map<std::int64_t, double>> seconds_;  // by rows
  std::map<std::string, Part> parts_;                      // by Method::part
};

/// `engine`, whose calls are counted.
std::shared_ptr<Engine> counted(std::shared_ptr<Engine> engine, const Package& package, std::shared_ptr<Demand> demand);

/// Times every method of a package, called with so many rows, on a device that does nothing else, with its stream's
/// clock, and tells `demand`. The median of `repeats` calls after one to warm up. Nothing where the device has no
/// clock.
void measure_alone(Engine& engine, const Package& package, const MethodRows& rows, int repeats, Device& device,
                   Demand& demand);

}  // namespace millrace
