#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace millrace {

/// SIGINT and SIGTERM, taken by a thread of its own: the first asks the run to stop; the second, or 20 s
/// without an end, ends the process at once (what is committed stays, the run can be resumed). SIGPIPE and SIGHUP are
/// ignored: a closed terminal does not end a run.
///
/// Make it before any other thread, so that all threads inherit the blocked signals.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  /// What the first signal calls, on the signals' thread; at once if it has come already. Empty: nothing.
  void on_stop(std::function<void(int signal)> stop);

  /// The first signal that came, or 0.
  int received() const { return received_; }

 private:
  void wait();

  int wake_ = -1;
  std::atomic<int> received_{0};
  std::mutex mutex_;
  std::function<void(int signal)> stop_;
  std::thread thread_;
};

}  // namespace millrace
