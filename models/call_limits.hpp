#pragma once

#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "models/engine.hpp"

namespace millrace {

/// The most rows (pictures, or boxes of a decoder) that a call of a model may have on one device, learned where memory
/// ran out, so that the same call does not fail again and again. Powers of two, as padded calls have (exec_shapes.hpp):
/// what is at most as many is not padded beyond. Thread-safe.
class CallLimits {
 public:
  using Key = std::pair<std::string, std::string>;  ///< Package::id(), method
  static constexpr int none = std::numeric_limits<int>::max();

  /// At least 1; `none` where nothing is known.
  [[nodiscard]] int most(const std::string& package, std::string_view method) const;
  /// A call of `rows` did not fit: the next smaller power of two may. One row that does not fit says that memory is
  /// full for other reasons: then what was learned before is forgotten.
  void ran_out(const std::string& package, std::string_view method, int rows);
  /// No more than `rows`, as an earlier run or a plan of memory found; rounded down.
  void at_most(const std::string& package, std::string_view method, int rows);

  /// What ran_out() taught.
  [[nodiscard]] std::map<Key, int> learned() const;

 private:
  struct Limit {
    int given = none, learned = none;
  };
  mutable std::mutex mutex_;
  std::map<Key, Limit> limits_;
};

/// `engine`, whose calls that run out of memory are remembered; they throw OutOfMemoryError.
std::shared_ptr<Engine> limited(std::shared_ptr<Engine> engine, const Package& package,
                                std::shared_ptr<CallLimits> limits);

}  // namespace millrace
