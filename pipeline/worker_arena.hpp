#pragma once

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>

namespace millrace {

/// A TBB arena in which at most `workers` threads compute: the thread that waits for the graph, and threads of TBB.
class WorkerArena {
 public:
  explicit WorkerArena(int workers);
  template <class Work>
  void execute(const Work& work) {
    arena_.execute(work);
  }

 private:
  // Raises the limit of TBB's threads: on one core it is none, and TBB warns on stderr when it needs one.
  oneapi::tbb::global_control threads_;
  oneapi::tbb::task_arena arena_;
};

/// Lowers the priority of the threads that compute as workers, by `nice` levels from that of the constructing thread.
/// The threads keep their level, although TBB shares them with all arenas of the process.
/// A thread with a lower priority stays as it is, because only a privileged process could raise it.
///
/// Bodies call apply() themselves. A task_scheduler_observer would do it for them,
/// but TBB leaks its proxy if a thread is still in the arena when the process ends.
class WorkerNiceness {
 public:
  explicit WorkerNiceness(int nice);
  /// Call it at the beginning of a body. Sets the name and the level of its thread, once for each thread.
  void apply() const;

 private:
  const int level_;
};

}  // namespace millrace
