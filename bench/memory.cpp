// Does memory grow with the length of a run?
//
//     bench_memory [--frames N] [--check] [--leak]
//
// Simulated frames go through the whole graph. The program reads its resident set while they are committed.
// After the first 10 % of the frames, it must grow by less than 16 MB.
// - --check: exit code 1 if it grows by more.
// - --leak: keep 1 kB per frame. --check must find that.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iostream>

#include "bench/simulated.hpp"

namespace millrace::bench {
namespace {

constexpr double bar_mb = 16;

double resident_mb() {
  std::int64_t pages = 0;
  std::int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / 1e6;
}

struct Growth {
  double after_tenth_mb = 0;
  double highest_mb = 0;
  double last_mb = 0;
};

/// Runs the graph and fills in `growth`. Throws the error of the run, if it had one.
Result run(std::int64_t frames, bool leak, Growth& growth) {
  constexpr int max_batch = 16;
  const GraphOptions options{.max_batch = max_batch,
                             .admission_items = 6 * max_batch,
                             .slab_bytes = 1,
                             .byte_budget = 6 * max_batch,
                             .lanes = 3};
  auto bodies = empty_bodies(frames, max_batch);
  std::vector<std::unique_ptr<char[]>> leaked;
  std::int64_t committed = 0;
  bodies.commit = [&](SimulatedBatch& batch) {
    const auto before = committed;
    committed += static_cast<std::int64_t>(batch.frames.size());
    if (leak) {
      for (std::size_t i = 0; i < batch.frames.size(); ++i) {
        leaked.push_back(std::make_unique<char[]>(1000));  // zeroed, which makes its pages resident
      }
    }
    if (before * 200 / frames == committed * 200 / frames) return;  // reads 200 times in a run
    growth.last_mb = resident_mb();
    if (committed * 10 <= frames) {
      growth.after_tenth_mb = growth.last_mb;
    } else {
      growth.highest_mb = std::max(growth.highest_mb, growth.last_mb);
    }
  };
  const SteadyClock clock;
  auto result = SimulatedGraph(options, std::move(bodies), clock).run();
  if (result.error != nullptr) std::rethrow_exception(result.error);
  return result;
}

int main(int argc, char** argv) {
  std::int64_t frames = 100'000;
  bool check = false;
  bool leak = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--check") {
      check = true;
    } else if (argument == "--leak") {
      leak = true;
    } else if (argument == "--frames" && i + 1 < argc) {
      frames = std::max(std::stoll(argv[++i]) / 16, 1000LL) * 16;
    } else {
      std::cerr << "usage: bench_memory [--frames N, at least 16000] [--check] [--leak]\n";
      return 2;
    }
  }
  auto report = nlohmann::json{{"benchmark", "memory"}, {"machine", machine()}, {"leak", leak}};
  Growth growth;
  const auto result = run(frames, leak, growth);
  const auto window = result.finished - result.begun;
  const double grown_mb = growth.highest_mb - growth.after_tenth_mb;
  report["frames"] = result.committed;
  report["after_tenth_mb"] = growth.after_tenth_mb;
  report["highest_mb"] = growth.highest_mb;
  report["last_mb"] = growth.last_mb;
  report["growth_mb"] = grown_mb;
  report["bar_mb"] = bar_mb;
  report["wall_us_per_frame"] = static_cast<double>(window.time_ns) / 1e3 / static_cast<double>(result.committed);
  report["cpu_us_per_frame"] = static_cast<double>(window.cpu_ns) / 1e3 / static_cast<double>(result.committed);
  std::cout << report.dump(2) << '\n';
  return check && grown_mb >= bar_mb ? 1 : 0;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) { return millrace::bench::main(argc, argv); }
