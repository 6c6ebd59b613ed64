// Compares the trace of a graph with its statistics: both have the same times, so sums are equal to the nanosecond.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "base/trace_recorder.hpp"
#include "tests/pipeline/fake_graph.hpp"

namespace millrace {
namespace {

using Kind = TraceEvent::Kind;

/// The events of a recorder, by kind and stage.
struct Recorded {
  explicit Recorded(const TraceRecorder& recorder) {
    recorder.visit([&](const TraceEvent& event, std::string_view text, std::size_t) {
      by_stage[{event.kind, event.name == nullptr ? "" : *event.name}].push_back(event);
      if (event.kind == Kind::work) files[*event.name].insert(std::string(text));
    });
  }
  [[nodiscard]] const std::vector<TraceEvent>& of(Kind kind, const std::string& stage) {
    return by_stage[{kind, stage}];
  }
  /// The time in events, summed.
  [[nodiscard]] std::int64_t sum_ns(Kind kind, const std::string& stage) {
    std::int64_t sum = 0;
    for (const auto& event : of(kind, stage)) sum += event.ended_ns - event.begun_ns;
    return sum;
  }
  /// The numbers of the events, sorted.
  [[nodiscard]] std::vector<std::int64_t> numbers(Kind kind, const std::string& stage) {
    std::vector<std::int64_t> all;
    for (const auto& event : of(kind, stage)) all.push_back(event.number);
    std::ranges::sort(all);
    return all;
  }
  /// The time in the queue, summed over items, from the counts of waiting items.
  [[nodiscard]] std::int64_t queued_ns(const std::string& stage) {
    auto counts = of(Kind::queue, stage);
    std::ranges::sort(counts, {}, &TraceEvent::ended_ns);
    std::int64_t sum = 0;
    for (std::size_t i = 0; i + 1 < counts.size(); ++i)
      sum += counts[i].number * (counts[i + 1].ended_ns - counts[i].ended_ns);
    if (!counts.empty()) CHECK(counts.back().number == 0);
    return sum;
  }

  std::map<std::pair<Kind, std::string>, std::vector<TraceEvent>> by_stage;
  std::map<std::string, std::set<std::string>> files;
};

std::vector<std::int64_t> range(std::int64_t count) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(i);
  return all;
}

/// Readings of a run, by name.
std::map<std::string, Reading> readings(const Snapshot& snapshot) {
  std::map<std::string, Reading> all{{"bytes", snapshot.bytes},
                                     {"batch", snapshot.batch},
                                     {"input", snapshot.input},
                                     {"gate", snapshot.without_credits}};
  for (const auto& resource : snapshot.resources) {
    all[resource.total.name] = resource.total;
    for (const auto& part : resource.parts) all[part.name] = part;
  }
  return all;
}

struct Traced : fake::GraphFixture {
  Traced() {
    options.lanes = 2;
    options.workers = 2;
    options.read_threads = 2;
  }
  Result run() {
    auto it = bodies();
    it.file = [](const fake::Picture& frame) -> std::string_view { return frame.id % 2 == 0 ? "even" : "odd"; };
    graph = std::make_unique<fake::FakeGraph>(options, it, clock, &recorder);
    return graph->run();
  }
  TraceRecorder recorder{};
  std::unique_ptr<fake::FakeGraph> graph{};  // has the names in the events
};

TEST_CASE("work, waits and queues of a trace add up to the statistics") {
  Traced fixture;
  fixture.plan = fake::planned(61, 4);
  const auto result = fixture.run();
  REQUIRE(result.error == nullptr);
  Recorded recorded(fixture.recorder);
  const auto read = readings(result.finished);
  for (const char* stage : {"read", "decode"}) {
    CAPTURE(stage);
    CHECK(recorded.numbers(Kind::work, stage) == range(61));
    CHECK(recorded.files.at(stage) == std::set<std::string>{"even", "odd"});
  }
  for (const char* stage : {"preprocess", "detect", "encode", "commit"}) {
    CAPTURE(stage);
    CHECK(recorded.numbers(Kind::work, stage) == range(16));
    for (const auto& event : recorded.of(Kind::work, stage)) CHECK(event.frames == (event.number == 15 ? 1 : 4));
  }
  for (const char* stage : {"input", "gate", "read", "decode", "preprocess", "detect", "encode", "commit"}) {
    CAPTURE(stage);
    CHECK(recorded.sum_ns(Kind::work, stage) == read.at(stage).busy_ns);
  }
  for (const char* stage : {"lane", "encode", "commit"}) {
    CAPTURE(stage);
    CHECK(recorded.numbers(Kind::wait, stage) == range(16));
    CHECK(recorded.sum_ns(Kind::wait, stage) == read.at(stage).queued_ns);
  }
  for (const char* stage : {"read", "bytes", "decode", "batch", "lane", "encode", "commit"}) {
    CAPTURE(stage);
    CHECK(recorded.queued_ns(stage) == read.at(stage).queued_ns);
  }
  CHECK(recorded.of(Kind::work, "warm-up").size() == 2);
  CHECK(recorded.of(Kind::committed, "").back().number == 61);
}

TEST_CASE("a frame that failed has no work after its failure, and a batch of such frames none on a lane") {
  Traced fixture;
  fixture.plan = fake::planned(8, 4);
  fixture.in_frame = [](fake::Picture& frame, const std::string& stage) {
    if (frame.id < 4 && stage == "read") throw std::runtime_error("unreadable");
  };
  const auto result = fixture.run();
  REQUIRE(result.error == nullptr);
  Recorded recorded(fixture.recorder);
  CHECK(recorded.numbers(Kind::work, "read") == range(8));
  CHECK(recorded.numbers(Kind::work, "decode") == std::vector<std::int64_t>{4, 5, 6, 7});
  CHECK(recorded.numbers(Kind::work, "detect") == std::vector<std::int64_t>{1});
  CHECK(recorded.numbers(Kind::work, "commit") == range(2));
  // All waits have ended, also those of the batch that was skipped.
  for (const char* stage : {"lane", "encode", "commit"}) CHECK(recorded.numbers(Kind::wait, stage) == range(2));
}

TEST_CASE("a run that is stopped ends its waits") {
  Traced fixture;
  fixture.plan = fake::planned(40, 4);
  fixture.in_batch = [&](fake::Pictures&, const std::string& stage) {
    if (stage == "detect") fixture.graph->request_stop();
  };
  const auto result = fixture.run();
  CHECK(result.stopped);
  Recorded recorded(fixture.recorder);
  // Batches wait for a lane and then for the commit, even if they are given up.
  CHECK(recorded.numbers(Kind::wait, "lane") == recorded.numbers(Kind::wait, "commit"));
  CHECK(recorded.sum_ns(Kind::wait, "lane") == readings(result.finished).at("lane").queued_ns);
  CHECK(recorded.numbers(Kind::work, "commit").size() * 4 == static_cast<std::size_t>(result.committed));
}

}  // namespace
}  // namespace millrace
