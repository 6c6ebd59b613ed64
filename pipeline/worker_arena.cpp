#include "pipeline/worker_arena.hpp"

#include <oneapi/tbb/info.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "pipeline/crew.hpp"

namespace millrace {
namespace {

// On Linux the nice level belongs to the thread, and a thread's id is a process id to these calls.
int nice_level() { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }

}  // namespace

// A slot is kept for the waiting thread only where there are others: an arena of nothing but a kept slot is given a
// thread of TBB's as well as soon as something is enqueued, and would compute on two.
WorkerArena::WorkerArena(int workers)
    : threads_(oneapi::tbb::global_control::max_allowed_parallelism,
               static_cast<std::size_t>(std::max(oneapi::tbb::info::default_concurrency(), workers + 1))),
      arena_(workers, workers > 1 ? 1U : 0U) {}

WorkerNiceness::WorkerNiceness(int nice) : level_(nice_level() + nice) {}

void WorkerNiceness::apply() const {
  // The nice level and the name belong to the thread, and TBB's threads tell us nothing else of theirs.
  thread_local std::optional<int> current;
  if (!current) {
    name_this_thread("worker");
    current = nice_level();
  }
  if (level_ <= *current) return;
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), level_);
  current = level_;
}

}  // namespace millrace
