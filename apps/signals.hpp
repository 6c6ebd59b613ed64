#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace millrace {

/// What a command says when a signal comes.
struct StopTexts {
  const char* first = "stopping: finishing batches in flight (up to 20 s); press Ctrl-C again to stop now";
  const char* second = "stopped now; run the same command again to resume";
  const char* late =  ///< 20 s after the first signal
      "stopped now: batches in flight did not finish in 20 s; run the same command again to resume";
};

/// Handles SIGINT and SIGTERM on a thread of its own.
///
/// The first signal asks the run to stop. A second one, or 20 s without an end, ends the process with _exit:
/// committed results stay, and the run can be resumed.
/// SIGPIPE and SIGHUP are ignored, so a closed terminal does not end a run. SIGXFSZ is ignored: write() fails instead.
///
/// Construct it before any other thread starts: threads inherit the blocked signals.
class StopSignals {
 public:
  /// The texts must outlive it.
  explicit StopSignals(StopTexts texts = {});
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  /// The first signal calls `stop` on the thread of the signals. If it has already come, on_stop() calls `stop` itself.
  /// An empty function removes the previous one.
  void on_stop(std::function<void(int signal)> stop);

  /// The number of the first signal, or 0.
  int received() const { return received_; }

 private:
  void wait();

  const StopTexts texts_;
  int wake_ = -1;
  std::atomic<int> received_{0};
  std::mutex mutex_;
  std::function<void(int signal)> stop_;
  std::thread thread_;
};

}  // namespace millrace
