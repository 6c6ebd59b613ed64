#include "run/limits.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/text.hpp"

namespace millrace {
namespace {

// main, signals, scan, progress, events, serve, resources, source, commit, and two that LibTorch starts
constexpr int own_threads = 11;
constexpr int own_files = 24;  // standard streams, lock, signals, plan, segments, journal, lists, a package
// LibTorch (416 MiB), which is opened later, and packages of usual size with their calls (512 MiB).
constexpr std::int64_t model_bytes = std::int64_t{416 + 512} << 20;

void check_open_files(const GraphOptions& graph, int more_files) {
  // A reader has one open file. A worker that writes a side file also has its folders open.
  const auto needed = static_cast<rlim_t>(own_files + more_files + graph.read_threads + 3 * graph.workers);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  // A process may raise its own soft limit, so that the user does not have to.
  if (files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_NOFILE, &files);
  }
  if (files.rlim_cur >= needed) return;
  throw LimitError("this run needs up to " + std::to_string(needed) + " open files, but may have only " +
                   std::to_string(files.rlim_cur) +
                   "; raise the limit (ulimit -n) or lower --set read.threads=" + std::to_string(graph.read_threads));
}

/// Threads that only wait. Three limits can refuse threads: ulimit -u, pids.max, and ulimit -v for their stacks.
/// So the program starts threads to find out.
class TrialThreads {
 public:
  TrialThreads() = default;
  TrialThreads(const TrialThreads&) = delete;
  TrialThreads& operator=(const TrialThreads&) = delete;
  ~TrialThreads() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  /// Starts up to `count` threads. Returns how many the system allowed at the same time.
  int start(int count) {
    threads_.reserve(static_cast<std::size_t>(count));
    try {
      for (int i = 0; i < count; ++i) {
        threads_.emplace_back([this] {
          std::unique_lock lock(mutex_);
          wake_.wait(lock, [this] { return ended_; });
        });
      }
    } catch (const std::system_error&) {
      // The system allows no more threads: the number so far is the result.
    }
    return static_cast<int>(threads_.size());
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

void check_threads(const ResolvedConfig& resolved) {
  const GraphOptions& graph = resolved.graph;
  const int needed = own_threads + graph.read_threads + graph.workers + graph.lanes * resolved.team;
  const int given = TrialThreads().start(needed);
  if (given == needed) return;
  throw LimitError("this run needs " + std::to_string(needed) + " threads, but the system allows " +
                   std::to_string(given) +
                   "; raise the limit (ulimit -u, pids.max of the container, or ulimit -v for their stacks), or lower "
                   "--set threads.team, threads.lanes, threads.workers or read.threads");
}

void check_address_space(const GraphOptions& graph) {
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY) return;
  std::int64_t pages = 0;
  // The first number of statm: all mapped pages, which ulimit -v limits.
  std::ifstream("/proc/self/statm") >> pages;
  const std::int64_t taken = pages * sysconf(_SC_PAGESIZE);
  const std::int64_t needed = graph.byte_budget + model_bytes;
  const std::int64_t left = static_cast<std::int64_t>(space.rlim_cur) - taken;
  if (left >= needed) return;
  const auto text = [](std::int64_t bytes) { return readable_bytes(static_cast<double>(bytes)); };
  throw LimitError("this run needs up to " + text(graph.byte_budget) + " for pictures (gate.memory) and about " +
                   text(model_bytes) + " for models, but its address space can grow only by " + text(left) +
                   "; raise the limit (ulimit -v), or lower --set gate.memory and gate.slab");
}

}  // namespace

// Without these checks, libraries crash or hang later if threads or address space run out.
// With too few open files, pictures would fail as io_error.
void check_limits(const ResolvedConfig& resolved, int more_files) {
  check_open_files(resolved.graph, more_files);
  check_threads(resolved);
  check_address_space(resolved.graph);
}

}  // namespace millrace
