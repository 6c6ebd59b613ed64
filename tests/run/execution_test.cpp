// The graph with lanes, fake models and fake devices in one process: two devices, memory for fewer lanes, stops, errors.
#include "run/execution.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "io/files/files.hpp"
#include "tests/run/lane_bench.hpp"

namespace millrace {
namespace {

std::map<std::int64_t, std::string> expected_lines(int items, const LaneBench& like = {}) {
  LaneBench bench;
  bench.batch_size = like.batch_size;
  BenchExecution run(bench, items);
  CHECK(run.run().committed == items);
  return run.lines;
}

TEST_CASE("every picture is committed once, and lines do not depend on lanes and devices") {
  const auto expected = expected_lines(100);
  CHECK(expected.size() == 100);
  struct Row {
    const char* device;
    int lanes;
  };
  for (const Row& row :
       {Row{"cpu", 1}, Row{"cpu", 3}, Row{"fake:1", 1}, Row{"fake:1", 3}, Row{"fake:2", 2}, Row{"fake:2", 5}}) {
    CAPTURE(row.device);
    CAPTURE(row.lanes);
    LaneBench bench;
    bench.device = row.device;
    bench.lanes = row.lanes;
    BenchExecution run(bench, 100);
    const Result result = run.run();
    CHECK(result.committed == 100);
    CHECK_FALSE(result.stopped);
    CHECK(run.lines == expected);
  }
}

TEST_CASE("each of two devices loads the models for its own lanes") {
  LaneBench bench;
  bench.device = "fake:2";
  bench.lanes = 2;
  BenchExecution run(bench, 32);
  run.run();
  CHECK(std::count(bench.loads.begin(), bench.loads.end(), "fake-yolo") == 2);
  CHECK(std::count(bench.loads.begin(), bench.loads.end(), "fake-sam") == 2);
  CHECK(run.execution.models().loads.size() == 4);
}

TEST_CASE("nothing is admitted before all lanes are warm") {
  LaneBench bench;
  bench.device = "fake:2";
  bench.lanes = 4;
  BenchExecution run(bench, 16);
  std::size_t calls_before = 0;
  run.on_next = [&](std::int64_t next) {
    if (next == 0) calls_before = bench.rows("forward").size();
  };
  run.run();
  CHECK(calls_before == 4);
  CHECK(run.execution.ready());
}

TEST_CASE("on the host, each model is called once to warm up, and the time is that of these calls") {
  LaneBench bench;
  bench.lanes = 4;
  BenchExecution run(bench, 16);
  std::atomic<bool> warm{false};
  run.on_next = [&](std::int64_t) { warm = true; };
  bench.at_call = [&](std::string_view, int) {
    if (!warm) run.clock.advance(1'000'000);
  };
  run.run();
  CHECK(run.execution.warm_up_ns() == 3 * 1'000'000);  // 1 ms each for forward, encode and decode
}

TEST_CASE("on the host, lanes warm up different models at the same time") {
  LaneBench bench;
  bench.lanes = 2;
  BenchExecution run(bench, 16);
  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::string> called;
  bool met = true;
  bench.at_call = [&](std::string_view method, int) {
    std::unique_lock lock(mutex);
    if (run.execution.ready()) return;
    called.insert(std::string(method));
    changed.notify_all();
    // Only if one lane calls both models does this end after ten seconds.
    met = changed.wait_for(lock, std::chrono::seconds(10), [&] {
      return called.count("forward") + called.count("encode") == 2;
    }) && met;
  };
  run.run();
  CHECK(met);
  CHECK(called == std::set<std::string>{"forward", "encode", "decode"});
}

TEST_CASE("on a GPU, the first lane warms up alone, and the others do so at the same time") {
  LaneBench bench;
  bench.device = "fake:1";
  bench.lanes = 3;
  BenchExecution run(bench, 16);
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<std::thread::id> first;
  std::set<std::thread::id> later;
  bool met = true, alone = true;
  bench.at_call = [&](std::string_view, int) {
    std::unique_lock lock(mutex);
    const auto self = std::this_thread::get_id();
    if (!first) first = self;
    if (self == *first) {
      if (!run.execution.ready()) alone = alone && later.empty();
      return;
    }
    later.insert(self);
    changed.notify_all();
    // Only if the lanes take turns does this end after ten seconds.
    met = changed.wait_for(lock, std::chrono::seconds(10), [&] { return later.size() == 2; }) && met;
  };
  run.run();
  CHECK(alone);
  CHECK(later.size() == 2);
  CHECK(met);
}

TEST_CASE("without a frame, no model is loaded") {
  for (const char* device : {"cpu", "fake:1:40000000"}) {
    CAPTURE(device);
    LaneBench bench;
    bench.device = device;
    BenchExecution run(bench, 0);
    CHECK(run.run().committed == 0);
    CHECK(run.execution.models().loads.empty());
    CHECK(run.execution.warm_up_ns() == 0);
    CHECK(run.execution.memory_plans().empty());
  }
}

TEST_CASE("lanes that do not fit into a device's memory are dropped") {
  const auto expected = expected_lines(64);
  int maximum = 0, minimum = 9;
  for (const int kilobytes : {4000, 6000, 9000, 14'000, 40'000}) {
    CAPTURE(kilobytes);
    LaneBench bench;
    bench.device = "fake:1:" + std::to_string(kilobytes * 1000);
    bench.lanes = 3;
    BenchExecution run(bench, 64);
    CHECK(run.run().committed == 64);
    const auto plans = run.execution.memory_plans();
    REQUIRE(plans.size() == 1);
    CHECK(plans.front().wanted_lanes == 3);
    maximum = std::max(maximum, plans.front().lanes);
    minimum = std::min(minimum, plans.front().lanes);
    if (plans.front().smaller_calls.empty() && run.execution.counters()[split_calls].count() == 0 &&
        run.execution.counters()[redone_batches].count() == 0)
      CHECK(run.lines == expected);
  }
  CHECK(minimum < maximum);
  CHECK(maximum == 3);
}

TEST_CASE("a stop while lanes warm up admits nothing") {
  LaneBench bench;
  bench.device = "fake:1";
  bench.lanes = 2;
  BenchExecution run(bench, 64);
  bench.before_detector = [&](const std::vector<int>&) { run.execution.request_stop(); };
  const Result result = run.run();
  CHECK(result.stopped);
  CHECK(result.committed == 0);
  CHECK(run.lines.empty());
}

TEST_CASE("a stop before the run stops the run") {
  LaneBench bench;
  BenchExecution run(bench, 64);
  run.execution.request_stop();
  const Result result = run.run();
  CHECK(result.stopped);
  CHECK(result.committed == 0);
}

TEST_CASE("a stop in the run finishes the batches that lanes have begun") {
  const auto expected = expected_lines(2000);
  for (const char* device : {"cpu", "fake:2"}) {
    CAPTURE(device);
    LaneBench bench;
    bench.device = device;
    bench.lanes = 2;
    BenchExecution run(bench, 2000);
    int batches = 0;
    run.on_commit = [&](const Batch&) {
      if (++batches == 3) run.execution.request_stop();
    };
    const Result result = run.run();
    CHECK(result.stopped);
    CHECK(result.committed >= 24);
    CHECK(result.committed < 2000);
    CHECK(result.committed == static_cast<std::int64_t>(run.lines.size()));
    CHECK(result.planned == result.committed + result.given_up);
    CHECK(run.lines.size() % 8 == 0);
    for (const auto& [item, line] : run.lines) CHECK(line == expected.at(item));
  }
}

TEST_CASE("a lost device ends the run with its own error; earlier commits stay") {
  LaneBench bench;
  bench.device = "fake:1";
  std::atomic<int> calls{0};
  bench.before_encoder = [&](const std::vector<int>&) {
    if (++calls == 30) throw DeviceError("CUDA error: an illegal memory access was encountered");
  };
  BenchExecution run(bench, 200);
  CHECK_THROWS_WITH_AS(run.run(), doctest::Contains("an illegal memory access"), DeviceError);
  CHECK(run.lines.size() < 200);
  const auto expected = expected_lines(200);
  for (const auto& [item, line] : run.lines) CHECK(line == expected.at(item));
}

TEST_CASE("a warm-up that fails ends the run before anything is admitted") {
  LaneBench bench;
  bench.before_decoder = [](const std::vector<int>&) { throw ModelError("no such operator"); };
  BenchExecution run(bench, 64);
  CHECK_THROWS_WITH_AS(run.run(), doctest::Contains("no such operator"), ModelError);
  CHECK(run.lines.empty());
}

TEST_CASE("storage that fails at the commit ends the run with its own error") {
  LaneBench bench;
  BenchExecution run(bench, 64);
  run.on_commit = [](const Batch& batch) {
    if (batch.position().batch == 2) throw StorageError("write", "segments/000000.part", ENOSPC);
  };
  CHECK_THROWS_AS(run.run(), StorageError);
  CHECK(run.lines.size() <= 56);
}

TEST_CASE("a file that cannot be read fails only its picture") {
  const auto expected = expected_lines(40);
  LaneBench bench;
  BenchExecution run(bench, 40);
  run.on_read = [](const Frame& frame) {
    if (frame.item.id % 10 == 3) throw PictureError(Reason::vanished, "the file is gone");
  };
  CHECK(run.run().committed == 40);
  for (const auto& [item, line] : run.lines) {
    const auto json = nlohmann::json::parse(line);
    if (item % 10 == 3) {
      CHECK(json.at("state") == "failed");
      CHECK(json.at("reason") == "vanished");
    } else {
      CHECK(line == expected.at(item));
    }
  }
}

TEST_CASE("without stages in the lane, nothing is warmed up") {
  LaneBench bench;
  bench.stages = {"decode", "encode"};
  BenchExecution run(bench, 20);
  CHECK(run.run().committed == 20);
  CHECK(bench.loads.empty());
}

TEST_CASE("the busy time of GPUs is the sum of the times of their calls and operations alone") {
  const std::vector<GpuPart> parts{{"detector", "detect"}, {"encoder", "segment"}, {"decoder", "segment"}};
  const Package yolo = detector_package("yolo");
  const Method& forward = yolo.methods.front();
  std::vector<DeviceModels> models(2);
  Snapshot none;
  add_gpus(none, models, 1, parts);
  CHECK(none.resources.empty());
  for (auto& device : models) {
    device.demand = std::make_shared<Demand>();
    device.work = std::make_shared<DeviceWork>();
  }
  models[0].demand->measured(yolo, "forward", 8, {0.004, 0.001});
  models[1].demand->measured(yolo, "forward", 8, {0.002, 0.001});
  Package larger = yolo;
  larger.fingerprint = "another of the same name";
  models[0].demand->measured(larger, "forward", 8, {1, 1});
  for (int i = 0; i < 10; ++i) models[0].demand->count(yolo, forward, 8);
  for (int i = 0; i < 5; ++i) models[1].demand->count(yolo, forward, 8);
  for (auto& device : models) {
    const DeviceWork::Job job{"detect", 0, "find_boxes", 2};
    device.work->ran(job);
    device.work->took(job, 0.003);
    const DeviceWork::Job copy{"detect", 0, "", 100, DeviceWork::Engine::uploads};
    device.work->ran(copy);
    device.work->took(copy, 0.007);
  }
  const DeviceWork::Job masks{"encode", 0, "", 7, DeviceWork::Engine::downloads};
  models[0].work->ran(masks);
  models[0].work->took(masks, 0.001);
  Snapshot snapshot;
  add_gpus(snapshot, models, 2, parts);
  REQUIRE(snapshot.resources.size() == 3);
  const auto& gpu = snapshot.resources.front();
  CHECK(gpu.total.name == "GPU");
  CHECK(gpu.total.servers == 2);
  CHECK(gpu.total.items == 17);
  CHECK(gpu.total.busy_ns == 56'000'000);
  CHECK(gpu.total.launch_ns == 15'000'000);
  CHECK(gpu.waited_for_by_lanes);
  REQUIRE(gpu.parts.size() == 4);
  CHECK(gpu.parts[0].name == "detector");
  CHECK(gpu.parts[0].stage == "detect");
  CHECK(gpu.parts[1].busy_ns == 0);
  CHECK(gpu.parts[3].name == "detect operations");
  CHECK(gpu.parts[3].stage == "detect");
  CHECK(gpu.parts[3].busy_ns == 6'000'000);
  CHECK(gpu.parts[3].launch_ns == 0);
  CHECK_FALSE(gpu.copies);
  // Copies are no work of the cores that run kernels.
  for (const auto& [resource, direction, stage, items, busy_ns] :
       {std::tuple{snapshot.resources[1], "uploads", "detect", 2, 14'000'000},
        {snapshot.resources[2], "downloads", "encode", 1, 1'000'000}}) {
    CHECK(resource.total.name == std::string("GPU ") + direction);
    CHECK(resource.total.servers == 2);
    CHECK(resource.waited_for_by_lanes);
    CHECK(resource.copies);
    REQUIRE(resource.parts.size() == 1);
    CHECK(resource.parts[0].name == std::string(stage) + " " + direction);
    CHECK(resource.parts[0].stage == stage);
    for (const Reading& row : {resource.total, resource.parts[0]}) {
      CHECK(row.items == items);
      CHECK(row.busy_ns == busy_ns);
      CHECK(row.launch_ns == 0);
    }
  }
  CHECK(copied_bytes(models) == std::map<std::string, std::int64_t>{{"detect", 200}, {"encode", 7}});
  CHECK(copied_bytes(std::vector<DeviceModels>(1)).empty());
}

}  // namespace
}  // namespace millrace
