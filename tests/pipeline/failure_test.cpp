// Exceptions in the bodies of the graph. No frame is lost, the failed one is marked, and the others are committed.
// A RunError ends the run.
#include <doctest/doctest.h>

#include "tests/pipeline/fake_graph.hpp"

namespace millrace {
namespace {

using fake::FakeGraph;
using fake::GraphFixture;
using fake::message;
using fake::Picture;
using fake::Pictures;

constexpr int frames = 40;
constexpr int batch_size = 4;
const std::vector<std::string> frame_bodies{"read", "decode"};
const std::vector<std::string> batch_bodies{"preprocess", "detect", "encode"};

void overlap_more(GraphFixture& fixture) {
  fixture.options.admission_items = 16;
  fixture.options.byte_budget = 1600;
  fixture.options.lanes = 2;
  fixture.options.workers = 2;
  fixture.plan = fake::planned(frames, batch_size);
}

/// Makes the bodies of `stage` throw `error` for the frame `id`, or for its batch.
template <class Error>
void plant(GraphFixture& fixture, const std::string& at_stage, std::int64_t id, const Error& error) {
  fixture.in_frame = [=](Picture& frame, const std::string& stage) {
    if (stage == at_stage && frame.id == id) throw error;
  };
  fixture.in_batch = [=](Pictures& batch, const std::string& stage) {
    for (const auto& frame : batch.frames) {
      if (stage == at_stage && frame->id == id) throw error;
    }
  };
}

struct Ill : RunError {
  using RunError::RunError;
};

// Plants an exception at the first, a middle and the last frame, 100 times each. Calls `check` for every committed frame.
template <class Check>
void plant_everywhere(const std::vector<std::string>& stages, const Check& check) {
  for (const auto& stage : stages) {
    for (const std::int64_t id : {0, frames / 2, frames - 1}) {
      for (int round = 0; round < 100; ++round) {
        GraphFixture fixture;
        overlap_more(fixture);
        plant(fixture, stage, id, std::runtime_error("planted"));
        const auto result = fixture.run();
        REQUIRE(message(result.error) == "");
        REQUIRE(result.committed == frames);
        for (const auto& batch : fixture.committed) {
          for (const auto& frame : batch) check(*frame, stage, id);
        }
      }
    }
  }
}

TEST_CASE("an exception in a frame's stage marks that frame only, 100 times each") {
  plant_everywhere(frame_bodies, [](const Picture& frame, const std::string& stage, std::int64_t id) {
    REQUIRE(frame.failed_in == (frame.id == id ? stage : ""));
    const bool decoded = std::ranges::count(frame.went, "decode") == 1;
    REQUIRE(decoded == (frame.id != id || stage == "decode"));
  });
}

TEST_CASE("an exception in a batch's stage marks its frames only, 100 times each") {
  plant_everywhere(batch_bodies, [](const Picture& frame, const std::string& stage, std::int64_t id) {
    const bool hit = frame.id / batch_size == id / batch_size;
    REQUIRE(frame.failed_in == (hit ? stage : ""));
    // A batch whose frames have all failed skips the remaining stages.
    REQUIRE((std::ranges::count(frame.went, "encode") == 1) == (!hit || stage == "encode"));
  });
}

TEST_CASE("an exception in commit ends the run as it was thrown, and that batch is not counted") {
  for (const std::int64_t id : {0, frames / 2, frames - 1}) {
    for (int round = 0; round < 100; ++round) {
      GraphFixture fixture;
      overlap_more(fixture);
      plant(fixture, "commit", id, std::runtime_error("disk is full"));
      const auto result = fixture.run();
      REQUIRE(message(result.error) == "disk is full");
      REQUIRE(result.error_stage == "commit");
      REQUIRE(result.held.empty());
      REQUIRE(result.committed == static_cast<std::int64_t>(fixture.commits.size()));
      REQUIRE_FALSE(fixture.commits.contains(id));
    }
  }
}

TEST_CASE("a RunError in any stage ends the run: frames in flight leave the graph, and no more are committed") {
  auto stages = frame_bodies;
  stages.insert(stages.end(), batch_bodies.begin(), batch_bodies.end());
  for (const auto& stage : stages) {
    for (const std::int64_t id : {0, frames / 2, frames - 1}) {
      for (int round = 0; round < 30; ++round) {
        GraphFixture fixture;
        overlap_more(fixture);
        plant(fixture, stage, id, Ill("device", "lost"));
        const auto result = fixture.run();
        REQUIRE_THROWS_AS(std::rethrow_exception(result.error), Ill);
        REQUIRE(message(result.error) == "device: lost");
        REQUIRE(result.error_stage == stage);
        REQUIRE(result.held.empty());
        REQUIRE(result.committed == static_cast<std::int64_t>(fixture.commits.size()));
        REQUIRE_FALSE(fixture.commits.contains(id));
      }
    }
  }
}

TEST_CASE("errors outside the stages end the run") {
  const auto run_with = [](const std::function<void(fake::FakeBodies&)>& change) {
    GraphFixture fixture;
    overlap_more(fixture);
    auto bodies = fixture.bodies();
    change(bodies);
    return FakeGraph(fixture.options, bodies, fixture.clock).run();
  };
  const auto fail = [](const char* what) { throw std::runtime_error(what); };

  auto result = run_with(
      [&](auto& bodies) { bodies.next = [&]() -> std::shared_ptr<Picture> { throw std::runtime_error("scan"); }; });
  CHECK(message(result.error) == "scan");
  CHECK(result.error_stage == "source");

  result = run_with([&](auto& bodies) {
    bodies.make_batch = [&](auto) -> std::shared_ptr<Pictures> { throw std::runtime_error("memory"); };
  });
  CHECK(message(result.error) == "memory");
  CHECK(result.error_stage == "batch");
  CHECK(result.committed == 0);

  result = run_with([&](auto& bodies) { bodies.lane_start = [&](int lane) { lane == 1 ? fail("model") : void(); }; });
  CHECK(message(result.error) == "model");
  CHECK(result.error_stage == "lane");

  std::atomic<int> stops{0};
  result = run_with([&](auto& bodies) {
    bodies.lane_start = [&](int lane) { lane == 0 ? fail("model") : void(); };
    bodies.lane_stop = [&](int) { ++stops; };
  });
  CHECK(stops == 1);  // only the lane that started

  result = run_with([&](auto& bodies) { bodies.lane_stop = [&](int) { fail("unload"); }; });
  CHECK(message(result.error) == "unload");
  CHECK(result.committed == frames);

  result = run_with([&](auto& bodies) { bodies.bytes = [](const Picture&) -> std::int64_t { throw 7; }; });
  CHECK(result.error == nullptr);
  CHECK(result.committed == frames);  // each marked as failed in read

  result = run_with([&](auto& bodies) {
    bodies.read = [&](Picture&) { fail("bad"); };
    bodies.frame_failed = [&](Picture&, const std::string&, const std::exception_ptr&) { fail("cannot mark"); };
  });
  CHECK(message(result.error) == "cannot mark");
  CHECK(result.error_stage == "read");
}

TEST_CASE("a RunError reaches a source that blocks") {
  GraphFixture fixture;
  fixture.plan = fake::planned(8, 4);
  plant(fixture, "detect", 5, Ill("device", "lost"));
  auto bodies = fixture.bodies();
  std::atomic<bool> interrupted{false};
  bodies.next = [&, next = bodies.next] {
    auto frame = next();
    if (frame == nullptr) interrupted.wait(false);
    return frame;
  };
  bodies.stop_next = [&] {
    interrupted = true;
    interrupted.notify_all();
  };
  const auto result = FakeGraph(fixture.options, bodies, fixture.clock).run();
  CHECK(message(result.error) == "device: lost");
}

TEST_CASE("a graph without its bodies is refused") {
  GraphFixture fixture;
  auto bodies = fixture.bodies();
  bodies.commit = nullptr;
  CHECK_THROWS_AS(FakeGraph(fixture.options, bodies, fixture.clock), std::invalid_argument);
}

}  // namespace
}  // namespace millrace
