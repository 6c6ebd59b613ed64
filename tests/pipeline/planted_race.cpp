// A deliberate race, which ThreadSanitizer must report. If it does not, the other tests of this build prove nothing.
// `planted_race threads` races between two threads, `planted_race graph` between bodies of a flow graph.
#include <tbb/flow_graph.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <cstdio>
#include <string_view>
#include <thread>

namespace {

int total = 0;

[[gnu::noinline]] void add_without_lock(int value) { total += value; }

// Lets one thread add after the other. Both threads in the same moment can hide the race: each looks for the other's
// access before it writes its own. The order is relaxed, because the wait must not synchronise the threads.
void wait_for(const std::atomic<int>& counter, int value) {
  while (counter.load(std::memory_order_relaxed) < value) std::this_thread::yield();
}

void race_between_threads() {
  std::atomic<int> added{0};
  std::thread other([&added] {
    add_without_lock(1);
    added.store(1, std::memory_order_relaxed);
  });
  wait_for(added, 1);
  add_without_lock(2);
  other.join();
}

void race_in_a_graph() {
  // The first body waits for the second one to enter, so that two threads run them on any machine.
  const tbb::global_control workers(tbb::global_control::max_allowed_parallelism, 4);
  tbb::task_arena arena(4);
  arena.execute([] {
    std::atomic<int> entered{0};
    std::atomic<int> added{0};
    tbb::flow::graph graph;
    tbb::flow::function_node<int, int> node(graph, tbb::flow::unlimited, [&entered, &added](int value) {
      const bool first = entered.fetch_add(1, std::memory_order_relaxed) == 0;
      if (first) {
        wait_for(entered, 2);
      } else {
        wait_for(added, 1);
      }
      add_without_lock(value);
      added.fetch_add(1, std::memory_order_relaxed);
      return value;
    });
    for (const int value : {1, 2}) node.try_put(value);
    graph.wait_for_all();
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view where = argc == 2 ? argv[1] : "";
  if (where == "threads") {
    race_between_threads();
  } else if (where == "graph") {
    race_in_a_graph();
  } else {
    std::fputs("usage: planted_race threads|graph\n", stderr);
    return 2;
  }
  std::printf("total %d\n", total);
  return 0;
}
