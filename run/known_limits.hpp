#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "models/call_limits.hpp"
#include "run/setup.hpp"

namespace millrace {

/// The folder for what the program learns about this machine: millrace in $XDG_STATE_HOME, else in ~/.local/state.
/// Empty if there is no home folder.
std::string user_state_folder();

/// Limits of model calls that ran out of memory on this machine, kept for later runs in a JSON file of the user.
/// They only save calls that would fail, so a file that is damaged or cannot be written is ignored.
class KnownLimits {
 public:
  /// An empty `file` keeps nothing.
  explicit KnownLimits(std::string file) : file_(std::move(file)) {}

  /// call_limits.json in user_state_folder(). Empty if there is no such folder.
  static std::string usual_file();

  /// Lowers `limits` to those of earlier runs on the same kind of device with at least as much planned memory.
  /// Limits of runs with less memory do not count, because their calls may fit now.
  /// Returns whether there were any limits.
  bool recall(const std::string& device, std::int64_t limit_bytes, const Packages& packages, CallLimits& limits) const;
  /// Keeps the `learned` limits of these packages' methods on this kind of device. Replaces older ones.
  void remember(const std::string& device, std::int64_t limit_bytes, const Packages& packages,
                const std::map<CallLimits::Key, int>& learned) const;

  const std::string& file() const { return file_; }

 private:
  const std::string file_;
};

}  // namespace millrace
