#pragma once

#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>

namespace millrace {

/// A TBB arena of `workers` slots: one for the thread that waits for the graph, the others for TBB's threads. Every
/// thread that enters it is set to the nice level `nice` and stays there, TBB's threads being shared by all arenas of
/// the process; a thread that is already nicer is left alone, since only a privileged process could get back.
class WorkerArena {
 public:
  // A slot is kept for the waiting thread only where there are others: an arena of nothing but a kept slot is given a
  // thread of TBB's as well as soon as something is enqueued, and would compute on two.
  WorkerArena(int workers, int nice) : arena_(workers, workers > 1 ? 1 : 0), niceness_(arena_, nice) {}

  /// From now on, threads that enter are set to the nice level.
  void start() { niceness_.observe(true); }
  template <class Function>
  void execute(const Function& function) {
    arena_.execute(function);
  }

 private:
  class Niceness final : public oneapi::tbb::task_scheduler_observer {
   public:
    Niceness(oneapi::tbb::task_arena& arena, int nice) : task_scheduler_observer(arena), nice_(nice) {}
    ~Niceness() override { observe(false); }
    void on_scheduler_entry(bool is_worker) override;

   private:
    const int nice_;
  };

  oneapi::tbb::task_arena arena_;
  Niceness niceness_;
};

}  // namespace millrace
