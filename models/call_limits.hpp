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

/// The maximum rows (pictures, or boxes of a decoder) of a model's calls on one device.
/// A limit is learned when memory runs out, so that the same call does not fail again and again.
/// Limits are powers of two, like padded calls (exec_shapes.hpp): padding never goes beyond a limit.
/// Thread-safe.
class CallLimits {
 public:
  using Key = std::pair<std::string, std::string>;              ///< Package::id(), name of the method
  static constexpr int none = std::numeric_limits<int>::max();  ///< no limit

  /// The limit: at least 1, or `none`.
  [[nodiscard]] int max_rows(const std::string& package, std::string_view method) const;
  /// Whether a call of `rows` that ran out of memory may be repeated, after all memory that nobody uses was freed.
  /// True once for this size: where memory stays short, each repetition would free and allocate everything anew.
  [[nodiscard]] bool may_repeat(const std::string& package, std::string_view method, int rows);
  /// Records that a call of `rows` ran out of memory: the limit becomes the next smaller power of two.
  /// If even one row does not fit, something else fills the memory: then the learned limit is forgotten.
  void ran_out(const std::string& package, std::string_view method, int rows);
  /// Sets a limit from an earlier run or from the memory plan, rounded down to a power of two.
  /// A lower limit that was set before stays.
  void limit_rows(const std::string& package, std::string_view method, int rows);

  /// The limits learned by ran_out().
  [[nodiscard]] std::map<Key, int> learned() const;

 private:
  struct Limit {
    int given = none, learned = none;
    int repeated = none;  // the fewest rows of a call that was repeated
  };
  mutable std::mutex mutex_;
  std::map<Key, Limit> limits_;
};

/// An engine that forwards to `engine`. When a call on a GPU runs out of memory, it frees the memory that LibTorch and
/// the stream keep, and repeats the call once. If that fails too, it records the limit in `limits`.
/// Such a call throws OutOfMemoryError.
std::shared_ptr<Engine> limited(std::shared_ptr<Engine> engine, const Package& package,
                                std::shared_ptr<CallLimits> limits);

}  // namespace millrace
