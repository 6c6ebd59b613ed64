#include "pipeline/lane_timeline.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <thread>

#include "tests/pipeline/fake_graph.hpp"

namespace millrace {
namespace {

/// Batch `i` of two stages, from 10 i to 10 i + 7, on lane i % 3.
void add(LaneTimeline& timeline, std::int64_t i) {
  timeline.add({i, static_cast<int>(i % 3), static_cast<int>(i % 2), i + 1},
               std::array<std::int64_t, 3>{10 * i, 10 * i + 4, 10 * i + 7});
}

TEST_CASE("a timeline keeps all batches of a short run") {
  LaneTimeline timeline(2, 4);
  CHECK(timeline.read().entries.empty());
  for (std::int64_t i = 0; i < 8; ++i) add(timeline, i);
  const auto kept = timeline.read();
  CHECK(kept.stages == 2);
  CHECK(kept.left_out == 0);
  REQUIRE(kept.entries.size() == 8);
  for (std::size_t i = 0; i < 8; ++i) {
    const auto number = static_cast<std::int64_t>(i);
    CHECK(kept.entries[i].batch == number);
    CHECK(kept.entries[i].lane == number % 3);
    CHECK(kept.entries[i].group == number % 2);
    CHECK(kept.entries[i].frames == number + 1);
    const auto moments = kept.moments_of(i);
    CHECK(std::vector(moments.begin(), moments.end()) == std::vector{10 * number, 10 * number + 4, 10 * number + 7});
  }
}

TEST_CASE("of a long run it keeps the first and the last batches, and the time between them") {
  LaneTimeline timeline(2, 4);
  std::size_t bytes = 0;
  for (std::int64_t i = 0; i < 1003; ++i) {
    add(timeline, i);
    if (i == 8) bytes = timeline.read().entries.size() + timeline.read().moments.size();
  }
  const auto kept = timeline.read();
  CHECK(kept.entries.size() + kept.moments.size() == bytes);
  CHECK(kept.left_out == 995);
  std::vector<std::int64_t> batches;
  for (const auto& entry : kept.entries) batches.push_back(entry.batch);
  CHECK(batches == std::vector<std::int64_t>{0, 1, 2, 3, 999, 1000, 1001, 1002});
  CHECK(kept.moments_of(4).front() == 9990);
  CHECK(kept.cut_begun_ns == 40);
  CHECK(kept.cut_ended_ns == 9987);
}

TEST_CASE("the newest batches are a timeline without a cut") {
  LaneTimeline timeline(2, 4);
  for (std::int64_t i = 0; i < 20; ++i) add(timeline, i);
  const auto newest = timeline.read().newest(3);
  CHECK(newest.stages == 2);
  CHECK(newest.left_out == 0);
  REQUIRE(newest.entries.size() == 3);
  CHECK(newest.entries[0].batch == 17);
  CHECK(newest.moments_of(0).front() == 170);
  CHECK(newest.moments_of(2).back() == 197);
  CHECK(newest.cut_ended_ns == 167);
  // It began early, and ended last. Before 177, other batches were in the lanes.
  timeline.add({20, 0, 0, 1}, std::array<std::int64_t, 3>{5, 6, 198});
  CHECK(timeline.read().newest(3).cut_ended_ns == 177);
  CHECK(timeline.read().newest(100).cut_ended_ns == 0);
  CHECK(timeline.read().newest(100).entries.size() == 8);
  CHECK(LaneTimeline(2, 4).read().newest(3).entries.empty());
}

TEST_CASE("the cut covers every batch that is left out, also those of slow lanes") {
  LaneTimeline timeline(1, 1);
  const auto add = [&](std::int64_t batch, std::int64_t begun, std::int64_t ended) {
    timeline.add({batch, 0, 0, 1}, std::array<std::int64_t, 2>{begun, ended});
  };
  add(0, 0, 10);
  add(1, 20, 50);
  add(2, 5, 60);  // began before the first part ended
  add(3, 30, 55);
  add(4, 70, 80);
  const auto kept = timeline.read();
  CHECK(kept.left_out == 3);
  CHECK(kept.cut_begun_ns == 5);
  CHECK(kept.cut_ended_ns == 60);
}

TEST_CASE("lanes add and others read at the same time") {
  LaneTimeline timeline(2, 64);
  std::vector<std::jthread> lanes;
  for (int lane = 0; lane < 3; ++lane) {
    lanes.emplace_back([&timeline, lane] {
      for (std::int64_t i = 0; i < 2000; ++i)
        timeline.add({i, lane, 0, i}, std::array<std::int64_t, 3>{i, i + lane, i + 2 * lane});
    });
  }
  for (int i = 0; i < 100; ++i) {
    const auto kept = timeline.read();
    for (std::size_t entry = 0; entry < kept.entries.size(); ++entry) {
      const auto moments = kept.moments_of(entry);
      CHECK(moments[0] == kept.entries[entry].frames);
      CHECK(moments[2] - moments[1] == kept.entries[entry].lane);
    }
  }
  lanes.clear();
  CHECK(timeline.read().left_out == 6000 - 128);
}

class HandClock final : public Clock {
 public:
  [[nodiscard]] std::int64_t now_ns() const noexcept override { return now_; }
  void advance(std::int64_t by_ns) { now_ += by_ns; }

 private:
  std::atomic<std::int64_t> now_{1000};
};

std::vector<std::int64_t> moments_of_a_run(fake::GraphFixture& fixture, const Clock& clock) {
  fixture.plan = fake::planned(1, 1);
  fake::FakeGraph graph(fixture.options, fixture.bodies(), clock);
  const auto result = graph.run();
  CHECK_FALSE(result.error);
  return graph.timeline().moments;
}

TEST_CASE("the graph records when a batch was in each stage of its lane") {
  HandClock clock;
  fake::GraphFixture fixture;
  fixture.in_frame = [&](fake::Picture&, const std::string& stage) { clock.advance(stage == "read" ? 3 : 5); };
  fixture.in_batch = [&](fake::Pictures&, const std::string& stage) {
    clock.advance(stage == "preprocess" ? 7 : stage == "detect" ? 11 : 13);
  };
  CHECK(moments_of_a_run(fixture, clock) == std::vector<std::int64_t>{1008, 1015, 1026});
}

TEST_CASE("a stage that a failed batch skips takes no time in the timeline") {
  HandClock clock;
  fake::GraphFixture fixture;
  fixture.in_batch = [&](fake::Pictures&, const std::string& stage) {
    clock.advance(7);
    if (stage == "preprocess") throw std::runtime_error("no");
  };
  CHECK(moments_of_a_run(fixture, clock) == std::vector<std::int64_t>{1000, 1007, 1007});
}

TEST_CASE("a graph that measures nothing has no timeline") {
  const UnmeasuredClock clock;
  fake::GraphFixture fixture;
  CHECK(moments_of_a_run(fixture, clock).empty());
}

TEST_CASE("each batch is in the timeline with its lane, its group and its frames") {
  fake::GraphFixture fixture;
  fixture.options.lanes = 2;
  fixture.options.groups = 3;
  fixture.plan = fake::planned(200, 3, 4, 50, [](int id) { return id % 3; });
  std::map<std::int64_t, std::pair<int, std::int64_t>> planned;  // batch -> group and frames
  for (const auto& frame : fixture.plan) planned[frame.batch] = {static_cast<int>(frame.id % 3), frame.slots};
  auto bodies = fixture.bodies();
  bodies.group = [](const fake::Picture& frame) { return static_cast<int>(frame.id % 3); };
  fake::FakeGraph graph(fixture.options, std::move(bodies), fixture.clock);
  const auto result = graph.run();
  const auto kept = graph.timeline();
  CHECK(kept.entries.size() == planned.size());
  std::array<std::int64_t, 2> free_ns{};  // by lane: when it was free again
  for (std::size_t i = 0; i < kept.entries.size(); ++i) {
    const auto& entry = kept.entries[i];
    CHECK(planned.at(entry.batch) == std::pair(entry.group, entry.frames));
    REQUIRE(entry.lane >= 0);
    REQUIRE(entry.lane < 2);
    const auto moments = kept.moments_of(i);
    CHECK(moments.front() >= free_ns[static_cast<std::size_t>(entry.lane)]);
    CHECK(std::ranges::is_sorted(moments));
    free_ns[static_cast<std::size_t>(entry.lane)] = moments.back();
  }
  CHECK(kept.moments.front() >= result.begun.time_ns);
}

TEST_CASE("statistics tell groups apart, and their sums are those of the stage") {
  fake::GraphFixture fixture;
  fixture.options.groups = 2;
  fixture.plan = fake::planned(60, 2, 4, 30, [](int id) { return id % 3 == 0 ? 1 : 0; });
  fixture.in_frame = [](fake::Picture& frame, const std::string& stage) {
    if (stage == "decode" && frame.id % 15 == 0) throw std::runtime_error("no");
  };
  auto bodies = fixture.bodies();
  bodies.group = [](const fake::Picture& frame) { return frame.id % 3 == 0 ? 1 : 0; };
  fake::FakeGraph graph(fixture.options, std::move(bodies), fixture.clock);
  const auto result = graph.run();
  const auto window = result.finished - result.begun;
  const auto check = [](const Reading& stage, std::vector<std::int64_t> items) {
    CAPTURE(stage.name);
    REQUIRE(stage.groups.size() == 2);
    CHECK(std::vector{stage.groups[0].items, stage.groups[1].items} == items);
    CHECK(stage.groups[0].busy_ns + stage.groups[1].busy_ns == stage.busy_ns);
    CHECK(stage.groups[0].failed + stage.groups[1].failed == stage.failed);
  };
  check(window.resources.at(0).total, {40, 20});
  check(window.resources.at(1).parts.at(0), {40, 20});
  CHECK(window.resources.at(1).parts.at(0).groups[1].failed == 4);
  check(window.resources.at(1).parts.at(1), {10, 6});
  for (const auto& stage : window.resources.at(2).parts) check(stage, {10, 6});
  check(window.resources.at(3).total, {10, 6});
  // From the end to the end nothing happens.
  CHECK((result.finished - result.finished).resources.at(0).total.groups[0].items == 0);
}

TEST_CASE("frames of one group are not counted twice, and an unknown group ends the run") {
  fake::GraphFixture fixture;
  fixture.plan = fake::planned(8, 4);
  CHECK(fixture.run().finished.resources.at(0).total.groups.empty());

  fake::GraphFixture other;
  other.plan = fake::planned(8, 4);
  auto bodies = other.bodies();
  bodies.group = [](const fake::Picture&) { return 1; };
  fake::FakeGraph graph(other.options, std::move(bodies), other.clock);
  const auto result = graph.run();
  REQUIRE(result.error);
  CHECK_THROWS_WITH_AS(std::rethrow_exception(result.error), doctest::Contains("is of group 1 of 1"), RunError);
}

}  // namespace
}  // namespace millrace
