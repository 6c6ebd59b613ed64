// What does a trace cost?
//
//     bench_trace [--repeats R]
//
// - add: nanoseconds for one event, on one thread, and on two threads at once
// - frames: CPU time of frames without work that go through the whole graph, with and without a recorder, in turns
// - write: a trace of the maximum size, written to the temporary folder
// Figures are medians of R repeats.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <thread>

#include "base/trace_recorder.hpp"
#include "bench/simulated.hpp"
#include "run/trace_file.hpp"

namespace millrace::bench {
namespace {

const std::string stage = "decode";
const std::string path = "pictures/2026/street/000123456.jpg";

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void record(TraceRecorder& recorder, std::int64_t events) {
  for (std::int64_t i = 0; i < events; ++i)
    recorder.add({TraceEvent::Kind::work, 0, &stage, i, i * 1000, i * 1000 + 500}, path);
}

/// Nanoseconds of CPU time for an event.
double add_ns(int threads) {
  constexpr std::int64_t each = 2'000'000;  // so most events replace older ones
  TraceRecorder recorder;
  const auto begun = process_cpu_ns();
  {
    std::vector<std::jthread> all;
    for (int i = 0; i < threads; ++i) all.emplace_back([&] { record(recorder, each); });
  }
  return static_cast<double>(process_cpu_ns() - begun) / static_cast<double>(each * threads);
}

/// CPU time in nanoseconds for a frame.
double frame_ns(TraceRecorder* recorder) {
  constexpr int max_batch = 16;
  constexpr std::int64_t frames = max_batch * 2000;
  const GraphOptions options{.max_batch = max_batch,
                             .admission_items = 6 * max_batch,
                             .slab_bytes = 1,
                             .byte_budget = 6 * max_batch,
                             .lanes = 3};
  auto bodies = empty_bodies(frames, max_batch);
  bodies.file = [](const SimulatedFrame&) { return std::string_view(path); };
  const SteadyClock clock;
  SimulatedGraph graph(options, std::move(bodies), clock, recorder);
  const auto result = graph.run();
  if (result.error != nullptr) std::rethrow_exception(result.error);
  return static_cast<double>((result.finished - result.begun).cpu_ns) / static_cast<double>(frames);
}

int main(int argc, char** argv) {
  int repeats = 7;
  if (argc == 3 && std::string(argv[1]) == "--repeats") repeats = std::max(std::atoi(argv[2]), 1);
  nlohmann::json report{{"benchmark", "trace"}, {"machine", machine()}, {"repeats", repeats}};
  for (const int threads : {1, 2}) {
    std::vector<double> ns;
    for (int i = 0; i < repeats; ++i) ns.push_back(add_ns(threads));
    report["add"].push_back({{"threads", threads}, {"ns_per_event", median(ns)}});
  }
  std::vector<double> without, with;
  for (int i = 0; i < repeats; ++i) {
    without.push_back(frame_ns(nullptr));
    TraceRecorder recorder;
    with.push_back(frame_ns(&recorder));
  }
  report["frames"] = {{"without_us", median(without) / 1e3}, {"with_us", median(with) / 1e3}};

  TraceRecorder recorder;
  record(recorder, 1'000'000);
  const auto file = (std::filesystem::temp_directory_path() / "millrace-bench-trace.json").string();
  const auto begun = SteadyClock().now_ns();
  write_trace(file, recorder, {});
  report["write"] = {{"seconds", static_cast<double>(SteadyClock().now_ns() - begun) / 1e9},
                     {"bytes", std::filesystem::file_size(file)},
                     {"events_left_out", recorder.cut().events}};
  std::filesystem::remove(file);
  std::cout << report.dump(2) << '\n';
  return 0;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) { return millrace::bench::main(argc, argv); }
