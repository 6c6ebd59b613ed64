#include "pipeline/worker_arena.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include "pipeline/crew.hpp"

namespace millrace {

void WorkerArena::Niceness::on_scheduler_entry(bool /*is_worker*/) {
  name_this_thread("worker");
  // On Linux the nice level belongs to the thread, and a thread's id is a process id to setpriority.
  const auto thread = static_cast<id_t>(gettid());
  if (nice_ > getpriority(PRIO_PROCESS, thread)) setpriority(PRIO_PROCESS, thread, nice_);
}

}  // namespace millrace
