// A deliberate race, which ThreadSanitizer must report. If it does not, the other tests of this build prove nothing.
// `planted_race threads` races between two threads, `planted_race graph` between bodies of a flow graph.
#include <tbb/flow_graph.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <barrier>
#include <cstdio>
#include <string_view>
#include <thread>

namespace {

int total = 0;

[[gnu::noinline]] void add_without_lock(int value) { total += value; }

void race_between_threads() {
  std::barrier start(2);
  auto add = [&start] {
    start.arrive_and_wait();
    for (int i = 0; i < 1000; ++i) add_without_lock(i);
  };
  std::thread other(add);
  add();
  other.join();
}

void race_in_a_graph() {
  // Two bodies wait for each other before they add, so that two threads run them on any machine.
  // The order is relaxed, because this wait must not synchronise them.
  const tbb::global_control workers(tbb::global_control::max_allowed_parallelism, 4);
  tbb::task_arena arena(4);
  arena.execute([] {
    std::atomic<int> entered{0};
    tbb::flow::graph graph;
    tbb::flow::function_node<int, int> node(graph, tbb::flow::unlimited, [&entered](int value) {
      entered.fetch_add(1, std::memory_order_relaxed);
      while (entered.load(std::memory_order_relaxed) < 2) std::this_thread::yield();
      add_without_lock(value);
      return value;
    });
    for (int i = 0; i < 1000; ++i) node.try_put(i);
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
