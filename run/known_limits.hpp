#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "models/call_limits.hpp"
#include "run/setup.hpp"

namespace millrace {

/// What calls of models ran out of memory on this machine, for later runs: a JSON file of the user's. It only saves
/// calls that would fail, so a file that is damaged, or cannot be written, is passed over.
class KnownLimits {
 public:
  /// `file` is empty where nothing is to be kept.
  explicit KnownLimits(std::string file) : file_(std::move(file)) {}

  /// call_limits.json in $XDG_STATE_HOME/millrace, else in ~/.local/state/millrace; empty without a home.
  static std::string usual_file();

  /// Holds `limits` to those of runs on such a device that planned with at least as much memory: where there is more
  /// now, what failed then may fit. Says whether there were any.
  bool recall(const std::string& device, std::int64_t limit_bytes, const Packages& packages, CallLimits& limits) const;
  /// Keeps what was learned of packages' methods on such a device, in place of what was known of them.
  void remember(const std::string& device, std::int64_t limit_bytes, const Packages& packages,
                const std::map<CallLimits::Key, int>& learned) const;

  const std::string& file() const { return file_; }

 private:
  const std::string file_;
};

}  // namespace millrace
