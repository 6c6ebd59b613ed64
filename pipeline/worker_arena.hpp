#pragma once

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>

namespace millrace {

/// A TBB arena on whose slots at most `workers` threads compute: the one that waits for the graph, and TBB's.
class WorkerArena {
 public:
  explicit WorkerArena(int workers);
  template <class Work>
  void execute(const Work& work) {
    arena_.execute(work);
  }

 private:
  oneapi::tbb::global_control
      threads_;  // on one core TBB has no thread of its own, and warns on stderr when it is asked for one
  oneapi::tbb::task_arena arena_;
};

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
