#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace millrace {

/// Threads of our own for what may block (files, devices); TBB's workers only compute. Tasks start in the order they
/// were posted. How many can wait is bounded by the gate, not here.
class Crew {
 public:
  /// Starts `threads` threads called `name`; throws std::system_error where the system has no more.
  Crew(const std::string& name, int threads);
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  /// Runs what was posted, then joins.
  ~Crew();

  /// From any thread. The task must not throw.
  void post(std::function<void()> task);

 private:
  void work();
  void stop_and_join();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

/// Names the calling thread in debuggers and `top` (15 bytes at most).
void name_this_thread(const std::string& name) noexcept;

}  // namespace millrace
