#include "pipeline/crew.hpp"

#include <pthread.h>

#include <utility>

namespace millrace {

void name_this_thread(const std::string& name) noexcept {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());  // longer names are refused
}

Crew::Crew(const std::string& name, int threads) {
  try {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, name] {
        name_this_thread(name);
        work();
      });
    }
  } catch (...) {
    stop_and_join();
    throw;
  }
}

Crew::~Crew() { stop_and_join(); }

void Crew::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void Crew::work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

void Crew::stop_and_join() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

}  // namespace millrace
