#include "pipeline/worker_arena.hpp"

#include <oneapi/tbb/info.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "pipeline/thread_pool.hpp"

namespace millrace {
namespace {

// On Linux each thread has its own nice level, and these calls accept the id of a thread as that of a process.
int nice_level() { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }

}  // namespace

// A slot is reserved for the waiting thread only if there are more slots.
// If the only slot is reserved, TBB adds a thread as soon as something is enqueued, and two threads compute.
WorkerArena::WorkerArena(int workers)
    : threads_(oneapi::tbb::global_control::max_allowed_parallelism,
               static_cast<std::size_t>(std::max(oneapi::tbb::info::default_concurrency(), workers + 1))),
      arena_(workers, workers > 1 ? 1U : 0U) {}

WorkerNiceness::WorkerNiceness(int nice) : level_(nice_level() + nice) {}

void WorkerNiceness::apply() const {
  // Kept per thread, because the nice level and the name belong to the thread.
  thread_local std::optional<int> current;
  if (!current) {
    name_this_thread("worker");
    current = nice_level();
  }
  if (level_ <= *current) return;
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), level_);
  // Also after a failure, so that the thread tries only once for each level.
  current = level_;
}

}  // namespace millrace
