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
  // Raises the limit of TBB's threads. On one core the limit is none, and TBB warns on stderr when it needs one.
  oneapi::tbb::global_control threads_;
  oneapi::tbb::task_arena arena_;
};

/// Lowers the priority of the threads that compute as workers: `nice` levels below the thread that constructs this.
/// The threads keep their level, although TBB shares them with all arenas of the process.
/// A thread with a lower priority stays as it is, because only a privileged process could raise it.
///
/// Bodies call apply() themselves. A task_scheduler_observer could call it for them.
/// But TBB leaks the observer's proxy if a thread is still in the arena when the process ends.
class WorkerNiceness {
 public:
  explicit WorkerNiceness(int nice);
  /// Call it at the beginning of a body. Sets the name and the level of its thread, once for each thread.
  void apply() const;

 private:
  const int level_;
};

}  // namespace millrace
