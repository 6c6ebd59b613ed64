#include "pipeline/thread_pool.hpp"

#include <pthread.h>

#include <utility>

#include "base/trace.hpp"

namespace millrace {

void name_this_thread(const std::string& name) noexcept {
  name_thread_in_trace(name);
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());  // Linux refuses longer names
}

ThreadPool::ThreadPool(const std::string& name, int threads, std::function<bool(int)> start,
                       std::function<void(int)> stop)
    : start_(std::move(start)), stop_(std::move(stop)) {
  try {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, i, own_name = name + " " + std::to_string(i)] {
        name_this_thread(own_name);
        const bool started = start_ && start_(i);
        // Also if `start_` failed: messages of the graph must leave the queue, or the graph would never finish.
        work(i);
        if (started && stop_) stop_(i);
      });
    }
  } catch (...) {
    // The destructor does not run after a constructor that throws, and a thread that is not joined ends the program.
    end_and_join();
    throw;
  }
}

ThreadPool::~ThreadPool() { end_and_join(); }

void ThreadPool::post(std::function<void(int)> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void ThreadPool::work(int thread) {
  for (;;) {
    std::function<void(int)> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return ending_ || !tasks_.empty(); });
      // The pool is ending, and all posted tasks have begun.
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task(thread);
  }
}

void ThreadPool::end_and_join() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

}  // namespace millrace
