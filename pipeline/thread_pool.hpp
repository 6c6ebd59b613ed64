#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace millrace {

/// Threads for tasks that may block (files, devices); TBB's workers only compute.
/// Tasks start in the order in which they were posted.
/// The queue has no limit of its own, because the gate limits the frames in flight.
class ThreadPool {
 public:
  /// Starts `threads` threads, each with `name` and its number as name.
  /// Throws std::system_error if the system has no more threads.
  /// Each thread first calls `start` with its number, then runs tasks, even if `start` returned false.
  /// At the end it calls `stop` if `start` returned true. None of these functions may throw.
  ThreadPool(const std::string& name, int threads, std::function<bool(int)> start = {},
             std::function<void(int)> stop = {});
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  /// Runs all posted tasks, then joins the threads.
  ~ThreadPool();

  /// From any thread: adds a task. The task gets the number of the thread that runs it, and must not throw.
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

/// Sets the name of the calling thread in profilers, and its first 15 bytes in debuggers and `top`.
void name_this_thread(const std::string& name) noexcept;

}  // namespace millrace
