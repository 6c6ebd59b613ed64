#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

/// What stages do on a GPU besides calls of models: operations, and copies from and to the host. Thread-safe.
///
/// The GPU times the first operations of each stage. Lanes can wait for each other within such a time, so the lower
/// quartile of the times per unit stands for an operation that runs alone.
class DeviceWork {
 public:
  /// Sums since the beginning, for one stage.
  struct Part {
    std::string stage;
    std::int64_t busy_ns = 0;  ///< of operations that were timed, as if each ran alone
    std::int64_t operations = 0;
    std::int64_t copied_bytes = 0;  ///< between the host and the device, in both directions
  };

  /// Counts an operation with this number of units (Operation::units). Returns whether its time is needed.
  bool ran(const std::string& stage, std::string_view operation, double units);
  /// An operation for which ran() returned true took this time.
  void took(const std::string& stage, std::string_view operation, double units, double seconds);
  void copied(const std::string& stage, std::int64_t bytes);

  /// By name of the stage.
  [[nodiscard]] std::vector<Part> parts() const;

 private:
  struct Operations {
    std::int64_t count = 0;
    double units = 0;
    std::vector<double> seconds_per_unit;  // of those that were timed
  };
  struct Stage {
    std::map<std::string, Operations, std::less<>> operations;
    std::int64_t copied_bytes = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Stage> stages_;
};

}  // namespace millrace
