#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace millrace {

/// How long the lanes' threads computed for calls of models, by rows. Thread-safe.
/// With a GPU, that is the time to launch the calls.
class CallCosts {
 public:
  struct Calls {
    std::int64_t calls = 0;
    std::vector<double> seconds;  ///< of some of the calls
  };
  using ByRows = std::map<int, Calls>;

  /// A call of a stage with this method and number of rows took this time, with its inputs and results.
  void took(const std::string& stage, const std::string& method, int rows, double seconds);

  [[nodiscard]] ByRows of(const std::string& stage, const std::string& method) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, ByRows> all_;
};

/// The part of a call's seconds that does not depend on its rows, as far as it is positive.
/// Nothing if no call had at least 1.5 times the rows of another.
[[nodiscard]] std::optional<double> fixed_seconds(const CallCosts::ByRows& calls);

/// Seconds for which the calling thread has computed.
[[nodiscard]] double thread_seconds() noexcept;

}  // namespace millrace
