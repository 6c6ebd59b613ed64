#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace millrace {

/// What stages do on a GPU besides calls of models: operations, and copies from and to the host. Thread-safe.
///
/// The GPU times the first operations of each kind. Lanes can wait for each other within such a time, so the lower
/// quartile of the times per unit stands for an operation that runs alone.
/// A kind has a name, a stage, a size (powers of two) and a place in the stage. Small jobs cost more for each unit. At
/// another place, the same name can have other shapes, such as the input of another model.
class DeviceWork {
 public:
  /// Sums since the beginning, for one stage.
  struct Part {
    std::string stage;
    std::int64_t busy_ns = 0;  ///< of operations that were timed, as if each ran alone; it never falls
    std::int64_t operations = 0;
    std::int64_t copied_bytes = 0;  ///< between the host and the device, in both directions
  };

  /// An operation: the stage, how many operations it asked for before in this batch, and the units (Operation::units).
  struct Job {
    std::string stage;
    int place = 0;
    std::string_view operation;
    double units = 0;
  };
  /// Counts an operation. Returns whether its time is needed.
  bool ran(const Job& job);
  /// An operation for which ran() returned true took this time.
  void took(const Job& job, double seconds);
  void copied(const std::string& stage, std::int64_t bytes);

  /// By name of the stage.
  [[nodiscard]] std::vector<Part> parts() const;

 private:
  using Kind = std::tuple<std::string_view, int, int>;  // operation, place, size
  struct Operations {
    std::int64_t count = 0;
    double units = 0;
    std::vector<double> seconds_per_unit;  // of those that were timed
  };
  struct Stage {
    std::map<Kind, Operations> operations;
    std::int64_t copied_bytes = 0;
    mutable std::int64_t busy_ns = 0;  // the highest that parts() has returned
  };
  static Kind kind_of(const Job& job);
  mutable std::mutex mutex_;
  std::map<std::string, Stage> stages_;
};

}  // namespace millrace
