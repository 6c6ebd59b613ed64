#pragma once

#include <string>
#include <vector>

#include "pipeline/statistics.hpp"

namespace millrace {

/// A change of the pipeline or its machine, and the most that it can bring.
struct Change {
  enum class Kind {
    stage,   ///< `stage` twice as fast
    input,   ///< the source gets its input twice as fast
    cores,   ///< twice the cores, with the same threads
    others,  ///< no other programs on these cores
    credits  ///< twice the pictures in flight
  };
  Kind kind = Kind::stage;
  std::string stage;       ///< the name of the stage; "input"; else empty
  std::string resource;    ///< what the stage runs on; "input"; else empty
  double rate = 1;         ///< upper bound on the new rate, as a multiple of the rate today
  std::string then_binds;  ///< the limit after the change: a resource's largest stage, "input", "cores" or "gate"
};

struct Changes {
  double unchanged = 1;  ///< the bound without a change; above 1 if nothing is used to the full
  std::vector<Change> all;
};

/// Estimates what single changes would bring in the window, from operational laws of a closed network:
/// - Utilisation: no resource can be busy for more than all of the time. Time without a core counts, but it shrinks
///   as the cores get less busy.
/// - The cores cannot compute for more than all of the time.
/// - Little's law: with N pictures in flight, the rate is at most N divided by the time of a picture without queues.
///
/// Parts of a GPU are changes only if it is full. Then a stage of the lanes is one only if it also needs the cores.
[[nodiscard]] Changes possible_changes(const Snapshot& window);

/// A resource that is this busy counts as saturated.
inline constexpr double saturated = 0.9;
/// A change whose bound is higher by less helps nothing.
inline constexpr double helps = 1.03;
/// Whether a GPU limits the lanes: those that wait for it count as busy, too.
[[nodiscard]] bool gpu_is_full(const Snapshot& window);

}  // namespace millrace
