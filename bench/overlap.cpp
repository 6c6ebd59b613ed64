// Is overlap real?
//
//     bench_overlap [--check] [--repetitions N] [--batches N]
//
// It runs pipelines whose stages wait, or burn CPU, for random times. It compares them with a bound of queueing theory:
//
//     waiting:    frames/s <= servers / mean cost of the slowest stage
//     CPU-bound:  frames/s <= min(slowest stage, cores / sum of the mean costs)
//
// It counts the work between the commits at 20 % and 80 % of the run, so that filling and draining do not count.
// The result is the minimum time for this work by the bound, divided by the time that it took.
// The cost of a waiting stage is the real waiting time, since timers are late. That of a burning stage is its CPU time.
//
// The machine should be idle: the report says how many cores other programs used.
// - --check: exit code 1 if the median of a shape is below 0.95 of its bound.
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <iostream>
#include <numeric>
#include <random>
#include <thread>

#include "bench/simulated.hpp"
#include "pipeline/verdict.hpp"

namespace millrace::bench {
namespace {

constexpr double bar = 0.95;
constexpr int max_batch = 8;
enum Stage { read, decode, detect, encode, commit, stages };

/// Mean costs in milliseconds: of a frame for read and decode, of a batch for detect, encode and commit.
struct Shape {
  const char* name;
  bool burns;
  int lanes;
  std::array<double, stages> mean_ms;
};

// "bind" names the slowest stage. The shapes that burn CPU need two cores or more: there is a worker for each core.
constexpr Shape shapes[] = {
    {"waiting, lanes bind", false, 3, {1, 0.3, 30, 1, 3}},
    {"waiting, readers bind", false, 3, {5, 0.3, 12, 1, 3}},
    {"waiting, commit is the limit", false, 3, {1, 0.3, 12, 1, 12}},
    {"burning, one lane is the limit", true, 1, {0.05, 0.2, 12, 1, 0.1}},
    {"burning, decode fills the cores", true, 1, {0.1, 2, 3, 1, 0.1}},
    {"burning, all alike fill the cores", true, 2, {0.5, 0.5, 4, 4, 4}},
};

double thread_cpu_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}
double wall_ms() { return static_cast<double>(SteadyClock().now_ns()) / 1e6; }

/// Waits or burns CPU for `ms` milliseconds. Returns the real cost in milliseconds.
double spend(double ms, bool burns) {
  const double start = burns ? thread_cpu_ms() : wall_ms();
  if (burns) {
    while (thread_cpu_ms() < start + ms) {
    }
    return ms;
  }
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
  return wall_ms() - start;
}

/// Costs in milliseconds of each stage, for each frame or batch.
using Costs = std::array<std::vector<double>, stages>;

Costs draw(const Shape& shape, bool exponential, int batches, unsigned seed) {
  std::mt19937 random(seed);
  Costs costs;
  for (int stage = 0; stage < stages; ++stage) {
    const auto s = static_cast<std::size_t>(stage);
    const double mean = shape.mean_ms[s];
    costs[s].resize(static_cast<std::size_t>(stage <= decode ? batches * max_batch : batches));
    constexpr double spread = 0.6;
    std::exponential_distribution<double> exp(1 / mean);
    std::lognormal_distribution<double> log(std::log(mean) - spread * spread / 2, spread);
    for (auto& cost : costs[s]) cost = exponential ? exp(random) : log(random);
  }
  return costs;
}

struct Outcome {
  double of_bound = 0;  // throughput as a share of its bound
  double own = 0;       // cores that this program used during the run
  double others = 0;    // cores that other programs used
  std::string verdict{};
};

Outcome run(const Shape& shape, bool exponential, int batches, unsigned seed) {
  const auto costs = draw(shape, exponential, batches, seed);
  const int cores = std::max(1, static_cast<int>(available_cores()));
  const GraphOptions options{.max_batch = max_batch,
                             .admission_items = 16 * max_batch,
                             .slab_bytes = 1,
                             .byte_budget = 16 * max_batch,
                             .read_threads = 4,
                             .read_ahead = 4 * max_batch,
                             .lanes = shape.lanes,
                             .workers = cores,
                             .worker_nice = 10};
  auto bodies = empty_bodies(std::int64_t{batches} * max_batch, max_batch);
  std::array<std::atomic<std::int64_t>, stages> spent_ns{};
  const auto spend_on = [&](std::size_t stage, std::int64_t index) {
    const double ms = spend(costs[stage][static_cast<std::size_t>(index)], shape.burns);
    spent_ns[stage] += static_cast<std::int64_t>(ms * 1e6);
  };
  bodies.read = [&](SimulatedFrame& frame) { spend_on(read, frame.id); };
  bodies.frame_stages[0].run = [&](SimulatedFrame& frame) { spend_on(decode, frame.id); };
  bodies.lane_stages[0].run = [&](SimulatedBatch& batch, int) { spend_on(detect, batch.frames[0]->batch_id()); };
  bodies.batch_stages[0].run = [&](SimulatedBatch& batch) { spend_on(encode, batch.frames[0]->batch_id()); };
  int committed = 0;
  double window_ms = 0;
  std::array<double, stages> work_ms{};  // in the window
  bodies.commit = [&](SimulatedBatch& batch) {
    spend_on(commit, batch.frames[0]->batch_id());
    ++committed;
    const int sign = committed == batches / 5 ? -1 : committed == batches - batches / 5 ? 1 : 0;
    if (sign == 0) return;
    window_ms += sign * wall_ms();
    for (std::size_t stage = 0; stage < stages; ++stage) {
      work_ms[stage] += sign * static_cast<double>(spent_ns[stage]) / 1e6;
    }
  };
  const SteadyClock clock;
  const double others_ms = machine_cpu_ms();
  const auto result = SimulatedGraph(options, std::move(bodies), clock).run();
  const auto whole = result.finished - result.begun;
  const double own_ms = static_cast<double>(whole.cpu_ns) / 1e6;
  const double others = (machine_cpu_ms() - others_ms - own_ms) * 1e6 / static_cast<double>(whole.time_ns);
  if (result.error != nullptr) std::rethrow_exception(result.error);

  const double servers[stages] = {4, 1.0 * cores, 1.0 * shape.lanes, 1.0 * cores, 1};
  double min_ms = (work_ms[decode] + work_ms[encode]) / cores;  // both run on the workers
  for (std::size_t stage = 0; stage < stages; ++stage) min_ms = std::max(min_ms, work_ms[stage] / servers[stage]);
  if (shape.burns) min_ms = std::max(min_ms, std::accumulate(work_ms.begin(), work_ms.end(), 0.0) / cores);
  return {min_ms / window_ms, own_ms * 1e6 / static_cast<double>(whole.time_ns), std::max(others, 0.0),
          judge(result.begun, result.finished).sentence};
}

int main(int argc, char** argv) {
  bool check = false;
  int repetitions = 3;
  int batches = 200;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--check") {
      check = true;
    } else if (argument == "--repetitions" && i + 1 < argc) {
      repetitions = std::max(std::stoi(argv[++i]), 1);
    } else if (argument == "--batches" && i + 1 < argc) {
      batches = std::max(std::stoi(argv[++i]), 50);
    } else {
      std::cerr << "usage: bench_overlap [--check] [--repetitions N] [--batches N, at least 50]\n";
      return 2;
    }
  }
  auto report = nlohmann::json{
      {"benchmark", "overlap"}, {"machine", machine()}, {"repetitions", repetitions},       {"batches", batches},
      {"max_batch", max_batch}, {"bar", bar},           {"shapes", nlohmann::json::array()}};
  bool good = true;
  for (const auto& shape : shapes) {
    for (const bool exponential : {true, false}) {
      std::vector<double> ratios;
      std::string verdict;
      double own = 0;
      double others = 0;
      for (int i = 0; i < repetitions; ++i) {
        const auto outcome = run(shape, exponential, batches, static_cast<unsigned>(i + 1));
        ratios.push_back(outcome.of_bound);
        verdict = outcome.verdict;
        own = std::max(own, outcome.own);
        others = std::max(others, outcome.others);
      }
      if (others > 0.1) std::cerr << shape.name << ": other programs used up to " << others << " cores meanwhile\n";
      std::ranges::sort(ratios);
      const auto median = ratios[ratios.size() / 2];
      good = good && median >= bar;
      report["shapes"].push_back({{"name", shape.name},
                                  {"costs", exponential ? "exponential" : "lognormal"},
                                  {"cores_used_max", own},
                                  {"cores_of_others_max", others},
                                  {"of_bound_median", median},
                                  {"of_bound_min", ratios.front()},
                                  {"of_bound_max", ratios.back()},
                                  {"verdict_of_last", verdict}});
    }
  }
  report["passes"] = good;
  std::cout << report.dump(2) << '\n';
  return check && !good ? 1 : 0;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) { return millrace::bench::main(argc, argv); }
