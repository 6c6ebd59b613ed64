#pragma once

#include <oneapi/tbb/task_arena.h>

#include <memory>

namespace millrace {

/// A TBB arena on whose slots at most `workers` threads compute: the one that waits for the graph, and TBB's.
[[nodiscard]] std::unique_ptr<oneapi::tbb::task_arena> make_worker_arena(int workers);

/// How far the threads that compute on workers' slots are set behind the thread that made this. They stay there, TBB's
/// threads being shared by all arenas of the process; one that is further behind is left alone, since only a privileged
/// process could get back.
///
/// Bodies apply it themselves: a task_scheduler_observer would do it for them, but TBB leaks its proxy when a thread is
/// still in the arena as the process ends.
class WorkerNiceness {
 public:
  explicit WorkerNiceness(int nice);
  /// At the beginning of a body: names its thread and sets its level, once for each thread.
  void apply() const;

 private:
  const int level_;
};

}  // namespace millrace
