#pragma once

#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>

#include <memory>

namespace millrace {

/// A TBB arena on whose slots at most `workers` threads compute: the one that waits for the graph, and TBB's.
[[nodiscard]] std::unique_ptr<oneapi::tbb::task_arena> make_worker_arena(int workers);

/// While it lives, every thread that enters the arena is set `nice` levels behind the thread that made this. It stays
/// there, TBB's threads being shared by all arenas of the process; one that is further behind is left alone, since only
/// a privileged process could get back.
class WorkerNiceness final : public oneapi::tbb::task_scheduler_observer {
 public:
  WorkerNiceness(oneapi::tbb::task_arena& arena, int nice);
  WorkerNiceness(const WorkerNiceness&) = delete;
  WorkerNiceness& operator=(const WorkerNiceness&) = delete;
  ~WorkerNiceness() override { observe(false); }

  void on_scheduler_entry(bool is_worker) override;

 private:
  const int level_;
};

}  // namespace millrace
