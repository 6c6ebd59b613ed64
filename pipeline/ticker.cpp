#include "pipeline/ticker.hpp"

#include <exception>
#include <utility>

#include "pipeline/thread_pool.hpp"

namespace millrace {

Ticker::Ticker(const std::string& name, std::chrono::milliseconds period, std::function<void()> tick)
    : thread_([this, name, period, tick = std::move(tick)] {
        name_this_thread(name);
        std::unique_lock lock(mutex_);
        while (!wake_.wait_for(lock, period, [this] { return ended_; })) {
          try {
            tick();
          } catch (const std::exception&) {  // for example, memory ran out: the next call may succeed
          }
        }
      }) {}

Ticker::~Ticker() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

}  // namespace millrace
