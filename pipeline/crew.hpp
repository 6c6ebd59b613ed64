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
  /// Starts `threads` threads called `name` and their number; throws std::system_error where the system has no more.
  /// Each thread first calls `start` with its number, then does tasks, and at the end calls `stop` if `start` returned
  /// true. None of them must throw.
  Crew(const std::string& name, int threads, std::function<bool(int)> start = {}, std::function<void(int)> stop = {});
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  /// Runs what was posted, then joins.
  ~Crew();

  /// From any thread. The task gets the number of the thread that does it and must not throw.
  void post(std::function<void(int)> task);

 private:
  void work(int thread);
  void end_and_join();

  const std::function<bool(int)> start_;
  const std::function<void(int)> stop_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void(int)>> tasks_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

/// Names the calling thread in debuggers and `top` (15 bytes at most).
void name_this_thread(const std::string& name) noexcept;

}  // namespace millrace
