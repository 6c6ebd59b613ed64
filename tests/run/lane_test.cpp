// A lane with fake models and devices: warm-up, retry in halves, memory that runs out, eviction, a lost device.
#include "run/lane.hpp"

#include <doctest/doctest.h>

#include <utility>

#include "run/run_ended.hpp"
#include "tests/run/lane_bench.hpp"

namespace millrace {
namespace {

using Rows = std::vector<int>;

std::unique_ptr<Stream> stream_with(std::int64_t bytes) {
  return std::make_unique<FakeStream>(0, std::make_shared<FakeMemory>(bytes));
}

/// Runs out of memory in calls of this method with more than `maximum` rows.
AtCall no_more_than(int maximum, const std::string& method) {
  return [maximum, method](std::string_view called, int rows) {
    if (called == method && rows > maximum) throw OutOfMemoryError("no memory for so many");
  };
}

/// The lines of the batch from the host's device without faults.
std::vector<std::string> expected_lines(int size) {
  LaneBench bench;
  BenchLane lane(bench);
  lane.warm_up();
  Batch batch = lane.batch(size);
  lane.run(batch);
  return lane.lines(batch);
}

nlohmann::json without_exec(const std::string& line) {
  auto json = nlohmann::json::parse(line);
  json.erase("exec");
  return json;
}

TEST_CASE("warming up calls every method in the largest shape of the run, and counts nothing") {
  LaneBench bench;
  BenchLane lane(bench);
  lane.warm_up();
  CHECK(bench.rows("forward") == Rows{8});
  CHECK(bench.rows("encode") == Rows{1});  // segment.image_batch on the CPU
  CHECK(bench.rows("decode") == Rows{1});
  CHECK(bench.loads == std::vector<std::string>{"fake-yolo", "fake-sam"});
  const DeviceCounts counts = lane.lane.counts();
  CHECK(counts.waits == 0);
  CHECK(counts.uploads == 0);
}

TEST_CASE("if calls are padded, warming up calls each possible shape") {
  LaneBench bench;
  bench.device = "fake:1";
  bench.options = {{"detect", {{"pad", {"yes"}}}},
                   {"segment", {{"pad", {"yes"}}, {"image_batch", {"4"}}, {"box_batch", {"16"}}}}};
  BenchLane lane(bench);
  lane.warm_up();
  CHECK(bench.rows("forward") == Rows{8, 4, 2, 1});
  CHECK(bench.rows("encode") == Rows{4, 2, 1, 1, 1});
  CHECK(bench.rows("decode") == Rows{16, 8, 4, 2, 1});
}

TEST_CASE("the shapes of a variant are those of its libraries, up to the largest call") {
  const auto rows_of = [](const CallShape& largest, const char* method) {
    Rows rows;
    for (const CallShape& shape : exec_shapes(largest)) rows.push_back(shape.rows.at(method));
    return rows;
  };
  for (const bool padded : {false, true}) {
    CallShape largest{{{"encode", 16}, {"decode", 160}}, padded, {{"decode", {16, 64, 160, 256}}}};
    CHECK(rows_of(largest, "decode") == (padded ? Rows{160, 64, 16, 16, 16} : Rows{160, 64, 16}));
    CHECK(rows_of(largest, "encode") == (padded ? Rows{16, 8, 4, 2, 1} : Rows{16, 16, 16}));
    largest.row_counts = {{"decode", {24}}};
    CHECK(rows_of(largest, "decode").at(1) == 24);
  }
}

TEST_CASE("a warm-up that runs out of device memory continues with smaller calls, which the lane keeps") {
  LaneBench bench;
  bench.at_call = no_more_than(3, "forward");
  BenchLane lane(bench, std::make_unique<FakeStream>());
  lane.warm_up();
  CHECK(bench.rows("forward") == Rows{2});
  Batch batch = lane.batch(8);
  lane.run(batch);
  CHECK(bench.rows("forward") == Rows{2, 2, 2, 2, 2});
  CHECK(lane.models().limits->learned() ==
        std::map<CallLimits::Key, int>{{{"fake-yolo hash of fake-yolo", "forward"}, 2}});
}

TEST_CASE("a warm-up without device memory for the inputs of a call continues with smaller calls, or names the model") {
  bool whole = false, smaller = false, refused = false;
  // The inputs of `forward` need 49 kB a picture. Those of `encode` need the same, and there are eight pictures.
  for (std::int64_t memory = 20'000; memory < 2'000'000; memory = memory * 5 / 4) {
    CAPTURE(memory);
    LaneBench bench;
    bench.options = {{"segment", {{"image_batch", {"8"}}}}};
    BenchLane lane(bench, stream_with(memory));
    try {
      lane.warm_up();
    } catch (const ModelError& error) {
      const std::string text = error.what();
      CHECK(text.find("/fake-yolo: ") != std::string::npos);
      CHECK((text.find("the device has no memory for the inputs of a call; use smaller models or another GPU") !=
                 std::string::npos ||
             text.find("out of memory") != std::string::npos));
      CHECK_FALSE((whole || smaller));  // more memory is never too little
      refused = true;
      continue;
    }
    const bool fits = bench.rows("forward") == Rows{8} && bench.rows("encode") == Rows{8};
    whole |= fits;
    smaller |= !fits;
    CHECK(fits == lane.models().limits->learned().empty());
    if (whole) CHECK(fits);
    if (bench.rows("forward").back() == 8) CHECK(memory > 8 * 49'000);
  }
  CHECK(refused);
  CHECK(smaller);
  CHECK(whole);
}

TEST_CASE("memory that runs out while the warm-up measures times makes calls smaller, and does not end the run") {
  LaneBench bench;
  int calls = 0;
  bench.at_call = [&](std::string_view method, int rows) {
    if (method == "forward" && rows == 8 && ++calls > 1) throw OutOfMemoryError("no memory for so many");
  };
  BenchLane lane(bench, std::make_unique<FakeStream>());
  lane.models().demand = std::make_shared<Demand>();  // as on a GPU
  CHECK_NOTHROW(lane.warm_up());
  CHECK(calls == 3);  // the warm-up, the first measurement and its repetition
  Batch batch = lane.batch(8);
  lane.run(batch);
  CHECK(bench.rows("forward") == Rows{8, 4, 4});
}

TEST_CASE("a warm-up without memory for one row fails and names the model") {
  for (const bool on_host : {false, true}) {
    CAPTURE(on_host);
    LaneBench bench;
    std::vector<int> asked;
    bench.at_call = [&](std::string_view method, int rows) {
      if (method != "forward") return;
      asked.push_back(rows);
      throw OutOfMemoryError("no memory for so many");
    };
    BenchLane lane(bench, on_host ? nullptr : std::make_unique<FakeStream>());
    CHECK_THROWS_WITH_AS(lane.warm_up(), doctest::Contains("/fake-yolo: "), ModelError);
    // All programs share the host's memory, so smaller calls are not tried there.
    // On a GPU, each size is tried again after the memory that nobody uses was freed.
    CHECK(asked == (on_host ? Rows{8} : Rows{8, 8, 4, 4, 2, 2, 1, 1}));
  }
}

TEST_CASE("a call that runs out of memory in the run is repeated in halves, and its size is not tried again") {
  const auto expected = expected_lines(8);
  LaneBench bench;
  BenchLane lane(bench, std::make_unique<FakeStream>());
  lane.warm_up();
  bench.at_call = no_more_than(4, "forward");  // now another program uses memory
  for (int i = 0; i < 2; ++i) {
    Batch batch = lane.batch(8);
    lane.run(batch);
    const auto lines = lane.lines(batch);
    for (std::size_t at = 0; at < lines.size(); ++at) CHECK(without_exec(lines[at]) == without_exec(expected[at]));
    CHECK(nlohmann::json::parse(lines[0]).at("exec") == "split");
  }
  CHECK(bench.rows("forward") == Rows{8, 4, 4, 4, 4});
  CHECK(lane.counters[redone_batches].count() == 0);
}

TEST_CASE("a call that runs out of memory once is repeated whole, and the batch has the results of any other") {
  for (const char* method : {"forward", "encode", "decode"}) {
    CAPTURE(method);
    LaneBench bench;
    BenchLane lane(bench, std::make_unique<FakeStream>());
    lane.warm_up();
    bool failed = false;
    bench.at_call = [&](std::string_view called, int) {
      if (called == method && !std::exchange(failed, true)) throw OutOfMemoryError("LibTorch has no memory left");
    };
    Batch batch = lane.batch(8);
    lane.run(batch);
    CHECK(failed);
    CHECK(lane.lines(batch) == expected_lines(8));
    CHECK(lane.models().limits->learned().empty());
    CHECK(lane.counters[split_calls].count() == 0);
    CHECK(lane.counters[redone_batches].count() == 0);
  }
}

TEST_CASE("if the stream needs memory, LibTorch gives back what it keeps, also after its first engine was evicted") {
  for (const std::int64_t budget : {150, 1000}) {  // room for one of two models, and for both
    CAPTURE(budget);
    LaneBench bench;
    bench.budget = budget;
    BenchLane lane(bench, stream_with(10'000'000));
    lane.warm_up();
    CHECK((lane.models().cache->statistics().evictions > 0) == (budget == 150));
    const int before = bench.trims;
    CHECK_THROWS_AS(static_cast<void>(lane.lane.device().empty({20'000'000}, DType::u8)), std::bad_alloc);
    CHECK(bench.trims == before + 1);
    Batch batch = lane.batch(8);  // loads the other model, and evicts the one that was there
    lane.run(batch);
    CHECK_THROWS_AS(static_cast<void>(lane.lane.device().empty({20'000'000}, DType::u8)), std::bad_alloc);
    CHECK(bench.trims == before + 2);
  }
}

TEST_CASE("a batch whose boxes all come from a manifest waits once, and its pixels are free for the next batch") {
  for (const bool segments : {false, true}) {
    CAPTURE(segments);
    LaneBench bench;
    bench.device = "fake:1";
    if (!segments) bench.stages = {"decode", "preprocess", "detect", "encode"};
    BenchLane lane(bench);
    lane.warm_up();
    Batch batch = lane.batch(8);
    std::vector<std::weak_ptr<std::uint8_t>> rasters;
    for (const auto& frame : batch.frames) {
      rasters.emplace_back(frame->columns.get(pixels).data);
      frame->item.boxes = std::vector<PromptBox>{{4, 5, 20, 30, 1}};
    }
    const std::size_t warm = bench.rows("forward").size();
    lane.run(batch);
    CHECK(bench.rows("forward").size() == warm);
    CHECK(lane.lane.counts().waits == 1);
    for (const auto& raster : rasters) CHECK(raster.expired());
  }
}

TEST_CASE("if all pictures of a batch fail, the graph skips the stages that follow, and their pixels are free") {
  LaneBench bench;
  BenchLane lane(bench, std::make_unique<FakeStream>());
  lane.warm_up();
  bench.at_call = [](std::string_view method, int) {
    if (method == "forward") throw ModelError("no picture is good enough");
  };
  Batch batch = lane.batch(8);
  std::vector<std::weak_ptr<std::uint8_t>> rasters;
  for (const auto& frame : batch.frames) rasters.emplace_back(frame->columns.get(pixels).data);
  lane.run(batch);
  for (const auto& frame : batch.frames) CHECK(frame->failed());
  for (const auto& raster : rasters) CHECK(raster.expired());
}

TEST_CASE("a model whose outputs differ from its package's declaration fails the warm-up") {
  LaneBench bench;
  bench.before_decoder = [](const std::vector<int>&) { throw ModelError("no such operator"); };
  BenchLane lane(bench);
  CHECK_THROWS_WITH_AS(lane.warm_up(), doctest::Contains("/fake-sam: no such operator"), ModelError);
}

TEST_CASE("models that do not fit into the budget together are evicted and loaded again, with the same results") {
  LaneBench bench;
  bench.budget = 150;  // room for one of two models
  BenchLane lane(bench);
  lane.warm_up();
  const std::size_t warm = bench.loads.size();
  CHECK(warm == 2);
  for (int i = 0; i < 2; ++i) {
    Batch batch = lane.batch(8);
    lane.run(batch);
    CHECK(lane.lines(batch) == expected_lines(8));
  }
  CHECK(bench.loads.size() > warm);
  CHECK(lane.models().cache->statistics().evictions >= 2);
}

TEST_CASE("a batch that does not fit into memory is repeated in halves, with the same results") {
  const auto expected = expected_lines(8);
  bool halved = false, failed = false, whole = false, decoded_again = false;
  // Memory from far too little to more than enough. The batch needs eight rasters of 12 kB, and inputs of 49 kB for both
  // models.
  for (std::int64_t memory = 60'000; memory < 4'000'000; memory = memory * 5 / 4) {
    CAPTURE(memory);
    LaneBench bench;
    bench.options = {{"segment", {{"image_batch", {"8"}}}}};
    BenchLane lane(bench, stream_with(memory));
    Batch batch = lane.batch(8);
    lane.run(batch);
    const auto lines = lane.lines(batch);
    for (std::size_t i = 0; i < batch.frames.size(); ++i) {
      const Frame& frame = *batch.frames[i];
      CAPTURE(i);
      if (frame.failed()) {
        failed = true;
        CHECK(frame.failure->reason == Reason::oom_device);
        CHECK(frame.failure->detail.find("even alone") != std::string::npos);
        CHECK(lane.counters[redone_batches].count() >= 3);  // batches of 8, 4 and 2
      } else {
        CHECK(without_exec(lines[i]) == without_exec(expected[i]));
        if (lane.counters[redone_batches].count() > 0) CHECK(nlohmann::json::parse(lines[i]).at("exec") == "split");
      }
    }
    if (lane.counters[redone_batches].count() == 0) {
      whole = true;
      CHECK(lane.again.empty());
      if (lane.counters[split_calls].count() == 0) CHECK(lines == expected);
    } else if (!batch.frames.front()->failed()) {
      halved = true;
      decoded_again |= !lane.again.empty();
    }
  }
  CHECK(decoded_again);
  CHECK(halved);
  CHECK(failed);
  CHECK(whole);
}

TEST_CASE("pictures whose pixels are gone are decoded again, those that failed before are not") {
  // Memory is enough for `preprocess` of a whole batch, but not for later stages, when pixels are already freed.
  for (std::int64_t memory = 200'000; memory < 2'000'000; memory = memory * 9 / 8) {
    LaneBench bench;
    BenchLane lane(bench, stream_with(memory));
    Batch batch = lane.batch(4);
    batch.frames[1]->fail("decode", Reason::truncated, "cut");
    batch.frames[1]->columns.drop(pixels);
    lane.run(batch);
    CHECK(batch.frames[1]->failure->reason == Reason::truncated);
    if (lane.counters[redone_batches].count() != 1 || lane.again.empty()) continue;
    CHECK(lane.again == std::vector<std::int64_t>{0, 2, 3});
    for (const std::size_t slot : {0U, 2U, 3U}) CHECK_FALSE(batch.frames[slot]->failed());
    return;
  }
  FAIL("no memory was such that a batch was done again once");
}

/// The error with which the lane ends the run at this batch.
RunEnded ended_by(BenchLane& lane, Batch& batch) {
  try {
    lane.run(batch);
  } catch (const RunEnded& ended) {
    return ended;
  }
  throw std::logic_error("the run did not end");
}

TEST_CASE("a lost device ends the run and names stage and batch; it is not tried again") {
  LaneBench bench;
  bench.device = "fake:1";
  bool lost = false;
  bench.before_encoder = [&lost](const std::vector<int>&) {
    if (lost) throw DeviceError("CUDA error: unspecified launch failure");
  };
  BenchLane lane(bench);
  lane.warm_up();
  lost = true;
  bench.calls.clear();
  Batch batch = lane.batch(4, 7);
  const RunEnded ended = ended_by(lane, batch);
  const std::string text = ended.what();
  CHECK(text.find("batch 7 (28.jpg and 3 more)") != std::string::npos);
  CHECK(text.find("Run the same command again to resume") != std::string::npos);
  CHECK_THROWS_AS(std::rethrow_exception(ended.cause()), DeviceError);
  CHECK(bench.rows("encode").size() == 1);
  CHECK(lane.counters[redone_batches].count() == 0);
}

TEST_CASE("a model that does not do what its package says ends the run, and no picture is blamed") {
  LaneBench bench;
  bool broken = false;
  bench.before_encoder = [&broken](const std::vector<int>&) {
    if (broken) throw PackageError("/fake-sam: encode: unexpected shape");
  };
  BenchLane lane(bench);
  lane.warm_up();
  broken = true;
  bench.calls.clear();
  Batch batch = lane.batch(4, 0);
  const RunEnded ended = ended_by(lane, batch);
  CHECK_THROWS_WITH_AS(std::rethrow_exception(ended.cause()), "/fake-sam: encode: unexpected shape", PackageError);
  CHECK(bench.rows("encode").size() == 1);
  for (const auto& frame : batch.frames) CHECK_FALSE(frame->failed());
}

TEST_CASE("counts of a lane are those of the run: one upload a picture, two waits and one download a batch") {
  LaneBench bench;
  bench.device = "fake:1";
  BenchLane lane(bench);
  lane.warm_up();
  for (int i = 0; i < 3; ++i) {
    Batch batch = lane.batch(8, i);
    lane.run(batch);
  }
  CHECK(lane.lane.counts().uploads == 24);
  CHECK(lane.lane.counts().waits == 6);
  CHECK(lane.lane.counts().downloads == 3);
  CHECK(lane.lane.counts().overflows == 0);
}

}  // namespace
}  // namespace millrace
