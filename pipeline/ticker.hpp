#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace millrace {

/// Calls a function once a period, on a thread of its own, until it is destroyed.
class Ticker {
 public:
  /// The first call comes after one period. A call that throws is given up, and the next one comes as usual.
  /// Throws std::system_error if the system has no more threads.
  Ticker(const std::string& name, std::chrono::milliseconds period, std::function<void()> tick);
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;
  /// Waits for the end of a call.
  ~Ticker();

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace millrace
