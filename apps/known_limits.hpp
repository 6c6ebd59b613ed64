#pragma once

#include <cstdint>
#include <string>

#include "apps/setup.hpp"
#include "models/call_limits.hpp"

namespace millrace {

/// What runs learned of memory on this machine, for the plans of later ones: a JSON file of the user's. It only saves
/// calls that would fail, so a file that is damaged, or cannot be written, is passed over.
class KnownLimits {
 public:
  /// `file` is empty where nothing is to be kept.
  explicit KnownLimits(std::string file) : file_(std::move(file)) {}

  /// call_limits.json in $XDG_STATE_HOME/millrace, else in ~/.local/state/millrace; empty without a home.
  static std::string usual_file();

  /// Makes `limits` those of runs on such a device that planned with at least as much memory: where there is more now,
  /// what failed then may fit.
  void recall(const std::string& device, std::int64_t limit_bytes, const Packages& packages, CallLimits& limits) const;
  /// Replaces what is known of these packages on such a device.
  void remember(const std::string& device, std::int64_t limit_bytes, const Packages& packages,
                const CallLimits& limits) const;

 private:
  const std::string file_;
};

}  // namespace millrace
