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
/// The GPU times the first jobs of each kind. Lanes can wait for each other within such a time, so the lower quartile of
/// the times per unit stands for a job that runs alone.
/// A kind has a name, a stage, a size (powers of two) and a place in the stage. Small jobs cost more for each unit. At
/// another place, the same name can have other shapes, such as the input of another model.
class DeviceWork {
 public:
  /// What does a job. A GPU has one of each, and they work at the same time.
  enum class Engine { kernels, uploads, downloads };

  /// Sums since the beginning.
  struct Sum {
    std::int64_t busy_ns = 0;  ///< of kinds that were timed, as if each job ran alone; it never falls
    std::int64_t jobs = 0;
  };
  /// The jobs of one stage.
  struct Part {
    std::string stage;
    std::map<Engine, Sum> engines{};  ///< those that had a job
    std::int64_t copied_bytes = 0;    ///< between the host and the device, in both directions
  };

  /// An operation: the stage, how many operations it asked for before in this batch, and the units (Operation::units).
  /// A copy has no place, and its units are bytes.
  struct Job {
    std::string stage;
    int place = 0;
    std::string_view operation;
    double units = 0;
    Engine engine = Engine::kernels;
  };
  /// Counts a job. Returns whether its time is needed.
  bool ran(const Job& job);
  /// A job for which ran() returned true took this time.
  void took(const Job& job, double seconds);

  /// By name of the stage.
  [[nodiscard]] std::vector<Part> parts() const;

 private:
  using Kind = std::tuple<Engine, std::string_view, int, int>;  // operation, place, size
  struct Jobs {
    std::int64_t count = 0;
    double units = 0;
    std::vector<double> seconds_per_unit;  // of those that were timed
  };
  struct Stage {
    std::map<Kind, Jobs> jobs;
    mutable std::map<Engine, std::int64_t> busy_ns;  // the highest that parts() has returned
  };
  static Kind kind_of(const Job& job);
  mutable std::mutex mutex_;
  std::map<std::string, Stage> stages_;
};

}  // namespace millrace
