#pragma once

#include <string>

#include "pipeline/clock.hpp"

namespace millrace {

/// All times of Linux: its monotonic clock, its thread clocks, and the files of /proc.
///
/// The run delay of a thread (`schedstat`) is the time for which it waited for a core. It takes 2 us to read.
/// The team of a thread are the threads with its name: new threads have the name of the thread that started them.
class SystemClock final : public SteadyClock {
 public:
  /// `proc` and `cgroup` are the folders to read; tests give folders of their own.
  explicit SystemClock(std::string proc = "/proc", const std::string& cgroup = "/sys/fs/cgroup");
  [[nodiscard]] std::optional<CoreTime> core_time() const noexcept override;
  void adopt_team() const noexcept override;
  [[nodiscard]] MachineTime machine_time() const override;

 private:
  const std::string proc_;
  const std::string throttling_;  // the file that counts the throttled time of this process's cgroup; empty if none
};

}  // namespace millrace
