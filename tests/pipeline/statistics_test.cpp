// Compares meters and histograms with hand-made histories. The test moves the clock.
#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "pipeline/cores.hpp"
#include "tests/pipeline/fake_graph.hpp"

namespace millrace {
namespace {

class HandClock final : public Clock {
 public:
  [[nodiscard]] std::int64_t now_ns() const noexcept override { return now_; }
  [[nodiscard]] std::optional<CoreTime> core_time() const noexcept override { return cores; }
  void advance(std::int64_t by_ns) { now_ += by_ns; }
  std::optional<CoreTime> cores{};

 private:
  std::atomic<std::int64_t> now_{1000};
};

TEST_CASE("a meter integrates queue, service and starvation over time") {
  HandClock clock;
  Meter meter("decode", 2, clock);
  clock.advance(10);  // both servers starve: 20
  meter.arrive();
  meter.arrive();
  meter.arrive();
  clock.advance(5);  // three wait, two idle servers with work before them do not starve
  const auto first = meter.begin();
  const auto second = meter.begin();
  clock.advance(7);  // two busy, one waits
  meter.end(first, false);
  clock.advance(1);  // one busy, one waits
  const auto third = meter.begin();
  clock.advance(2);  // two busy
  meter.end(second, true);
  clock.advance(4);  // one busy, one starves
  const auto busy_now = meter.read();
  CHECK(busy_now.name == "decode");
  CHECK(busy_now.items == 2);
  CHECK(busy_now.failed == 1);
  CHECK(busy_now.busy_ns == 7 * 2 + 1 + 2 * 2 + 4);  // the item in service counts up to now
  CHECK(busy_now.queued_ns == 3 * 5 + 7 + 1);
  CHECK(busy_now.starved_ns == 20 + 4);
  CHECK(busy_now.queue_length == 0);
  meter.end(third, false);
  meter.arrive();
  meter.leave();
  clock.advance(3);
  const auto window = meter.read() - busy_now;
  CHECK(window.items == 1);
  CHECK(window.busy_ns == 0);
  CHECK(window.starved_ns == 6);
  CHECK(window.starved(3) == doctest::Approx(1));
  CHECK(busy_now.utilisation(29) == doctest::Approx(23.0 / 58));
  CHECK(busy_now.mean_queue(29) == doctest::Approx(23.0 / 29));
  CHECK(busy_now.utilisation(0) == 0);
}

TEST_CASE("counts and times of a part are also those of its resource") {
  HandClock clock;
  Meter workers("workers", 1, clock);
  Meter decode("decode", 1, clock, Unit::frames, &workers);
  Meter encode("encode", 1, clock, Unit::batches, &workers);
  decode.arrive();
  encode.arrive();
  auto begun = decode.begin();
  clock.advance(3);
  decode.end(begun, false);
  begun = encode.begin();
  clock.advance(5);
  encode.end(begun, true);
  decode.arrive();
  decode.leave();
  CHECK(workers.read().busy_ns == 8);
  CHECK(workers.read().queued_ns == 3);
  CHECK(workers.read().items == 2);
  CHECK(workers.read().failed == 1);
  CHECK(workers.read().queue_length == 0);
  CHECK(decode.read().busy_ns == 3);
  CHECK(encode.read().busy_ns == 5);
}

TEST_CASE("a meter splits its busy time: on a core, without a core, and waiting for something else") {
  HandClock clock;
  Meter workers("workers", 1, clock);
  Meter decode("decode", 1, clock, Unit::frames, &workers);
  const auto serve = [&](std::int64_t wall_ns, CoreTime used) {
    decode.arrive();
    const auto service = decode.begin();
    clock.advance(wall_ns);
    auto& now = *clock.cores;
    now.on_core_ns += used.on_core_ns;
    now.waiting_ns += used.waiting_ns;
    now.team_on_core_ns += used.team_on_core_ns;
    now.team_waiting_ns += used.team_waiting_ns;
    decode.end(service, false);
  };
  SUBCASE("alone") {
    clock.cores = CoreTime{7, 7, 7, 7};
    serve(100, {60, 30, 0, 0});  // 10 ns are left: a file, a device, a lock
    serve(100, {100, 0, 0, 0});
    CHECK(decode.read().on_core_ns == 160);
    CHECK(decode.read().no_core_ns == 30);
    CHECK(decode.read().core_ns == 160);
    CHECK(decode.read().no_core() == doctest::Approx(0.15));
    CHECK(decode.read().on_core() == doctest::Approx(0.8));
  }
  SUBCASE("a thread sleeps while members of its team wait for a core") {
    clock.cores = CoreTime{};
    serve(100, {40, 10, 45, 30});  // asleep for 50 ns: 30 of them because of a member
    CHECK(decode.read().no_core_ns == 40);
    CHECK(decode.read().core_ns == 85);
    serve(100, {90, 0, 90, 70});  // members waited while the thread computed: it slept for 10 ns only
    CHECK(decode.read().no_core_ns == 50);
  }
  SUBCASE("clocks that disagree give no negative time") {
    clock.cores = CoreTime{};
    serve(100, {120, 50, 0, 80});
    CHECK(decode.read().on_core_ns == 100);
    CHECK(decode.read().no_core_ns == 0);
    serve(100, {-5, 10, -20, -3});
    CHECK(decode.read().on_core_ns == 100);
    CHECK(decode.read().no_core_ns == 10);
  }
  SUBCASE("unknown times are unknown") {
    decode.arrive();
    const auto service = decode.begin();
    clock.advance(10);
    clock.cores = CoreTime{};  // known at one end only
    decode.end(service, false);
    CHECK(decode.read().measured_ns == 0);
    CHECK_FALSE(decode.read().no_core().has_value());
  }
  CHECK(workers.read().on_core_ns == decode.read().on_core_ns);
  CHECK(workers.read().no_core_ns == decode.read().no_core_ns);
  CHECK(workers.read().measured_ns == decode.read().measured_ns);
  CHECK(workers.read().busy_ns == decode.read().busy_ns);
}

TEST_CASE("quantiles are within 5 % of the sorted durations") {
  std::mt19937_64 random(5);
  for (const double spread : {0.1, 1.0, 3.0}) {
    LatencyHistogram histogram;
    std::vector<double> durations;
    std::lognormal_distribution<double> draw(std::log(3e6), spread);
    for (int i = 0; i < 20'000; ++i) {
      durations.push_back(std::floor(draw(random)));
      histogram.add(static_cast<std::int64_t>(durations.back()));
    }
    std::ranges::sort(durations);
    for (const double q : {0.01, 0.5, 0.95, 0.999, 1.0}) {
      const auto exact = durations[static_cast<std::size_t>(std::ceil(q * 20'000)) - 1];
      CHECK(std::abs(histogram.quantile_ns(q) / exact - 1) < 0.05);
    }
  }
}

TEST_CASE("a histogram at its edges") {
  LatencyHistogram histogram;
  CHECK(histogram.quantile_ns(0.5) == 0);
  for (std::int64_t ns = 0; ns < 200; ++ns) {  // exact up to 32 ns, then within 3.2 %
    LatencyHistogram one;
    one.add(ns);
    CHECK(std::abs(one.quantile_ns(0.5) - static_cast<double>(ns)) <= 0.032 * static_cast<double>(ns));
  }
  for (int bit = 5; bit < 40; ++bit) {
    for (const std::int64_t off : {-1, 0, 1}) {
      LatencyHistogram one;
      const auto ns = (std::int64_t{1} << bit) + off;
      one.add(ns);
      CHECK(std::abs(one.quantile_ns(1) / static_cast<double>(ns) - 1) < 0.032);
    }
  }
  histogram.add(-5);  // clocks do not run backwards, but the index of the bin must be valid anyway
  histogram.add(std::int64_t{1} << 60);
  CHECK(histogram.quantile_ns(0.5) == 0);
  CHECK(histogram.quantile_ns(1) > 1e12);
  auto later = histogram;
  later.add(100);
  later -= histogram;
  CHECK(later.quantile_ns(0.5) == doctest::Approx(100).epsilon(0.05));
}

TEST_CASE("a histogram lists its bins with their longest duration") {
  LatencyHistogram histogram;
  CHECK(histogram.filled().empty());
  for (const std::int64_t ns : {3, 3, 1'000'000}) histogram.add(ns);
  histogram.add(std::int64_t{1} << 60);
  const auto bins = histogram.filled();
  REQUIRE(bins.size() == 3);
  CHECK(bins[0].highest_ns == 3);
  CHECK(bins[0].count == 2);
  CHECK(*bins[1].highest_ns >= 1'000'000);
  CHECK(static_cast<double>(*bins[1].highest_ns) < 1.065e6);  // a sixteenth of an octave, at its low end
  CHECK_FALSE(bins[2].highest_ns);                            // the last bin has no end
  // The longest duration of a bin is in it, and the next nanosecond is not.
  for (int bit = 0; bit < 39; ++bit) {
    LatencyHistogram one;
    one.add((std::int64_t{1} << bit) + 5);
    const auto highest = *one.filled().front().highest_ns;
    one.add(highest);
    CHECK(one.filled().size() == 1);
    one.add(highest + 1);
    CHECK(one.filled().size() == 2);
  }
}

TEST_CASE("a run fills, works at its own rate, and drains") {
  HandClock clock;
  const GraphOptions options{.max_batch = 2, .admission_items = 4, .slab_bytes = 1, .byte_budget = 4};
  Statistics statistics(options, {"decode"}, {"detect"}, {"encode"}, clock);
  std::deque<std::int64_t> admitted_ns;
  const auto admit = [&](int frames) {
    for (int i = 0; i < frames; ++i) admitted_ns.push_back(statistics.count_planned());
  };
  const auto commit = [&](int frames) {
    statistics.count_committed(std::vector(admitted_ns.begin(), admitted_ns.begin() + frames));
    admitted_ns.erase(admitted_ns.begin(), admitted_ns.begin() + frames);
    statistics.count_left(frames);
  };
  clock.advance(1000);
  const auto begun = statistics.snapshot();
  CHECK_FALSE(phases_of(begun - begun).fill_ns);
  clock.advance(5);  // the source waits for its first input
  admit(4);
  clock.advance(100);
  CHECK_FALSE(phases_of(statistics.snapshot() - begun).fill_ns);
  commit(2);
  CHECK_FALSE(phases_of(statistics.snapshot() - begun).steady_ns);  // nothing was admitted after it
  admit(2);
  clock.advance(50);
  commit(2);
  admit(1);
  clock.advance(50);
  commit(2);
  admit(1);
  CHECK((statistics.snapshot() - begun).in_flight == 2);
  clock.advance(80);
  commit(1);
  statistics.count_left(1);  // given up
  clock.advance(7);
  const auto window = statistics.snapshot() - begun;
  const Phases phases = phases_of(window);
  CHECK(phases.fill_ns == 100);
  CHECK(phases.steady_ns == 100);
  CHECK(phases.drain_ns == 87);
  CHECK(phases.steady_rate == doctest::Approx(4 / 100e-9));
  CHECK(window.time_ns == 5 + 100 + 100 + 87);
  CHECK(window.in_flight == 0);
  // From admission to commit: two frames of 100, two of 150, two of 100, one of 130.
  CHECK(window.latency.quantile_ns(0.5) == doctest::Approx(100).epsilon(0.04));
  CHECK(window.latency.quantile_ns(0.6) == doctest::Approx(130).epsilon(0.04));
  CHECK(window.latency.quantile_ns(1) == doctest::Approx(150).epsilon(0.04));
}

TEST_CASE("places where items wait are in the order of the flow") {
  HandClock clock;
  const GraphOptions options{.max_batch = 2, .admission_items = 4, .slab_bytes = 1, .byte_budget = 4};
  Statistics all(options, {"decode", "sharpness"}, {"preprocess", "detect"}, {"encode", "upload"}, clock);
  all.batch_stages[1].arrive(3);
  const auto snapshot = all.snapshot();
  std::vector<std::string> names;
  for (const Reading* place : waiting_places(snapshot)) names.push_back(place->name);
  CHECK(names == std::vector<std::string>{"read", "bytes", "decode", "sharpness", "batch", "lane", "encode", "upload",
                                          "commit"});
  CHECK(waiting_places(snapshot)[7]->queue_length == 3);
  names.clear();
  const Statistics few(options, {}, {}, {}, clock);
  const auto empty = few.snapshot();
  for (const Reading* place : waiting_places(empty)) names.push_back(place->name);
  CHECK(names == std::vector<std::string>{"read", "bytes", "batch", "commit"});
}

TEST_CASE("a graph that measures nothing runs, and counts its frames") {
  fake::GraphFixture fixture;
  const UnmeasuredClock clock;
  fixture.plan = fake::planned(50, 4);
  fake::FakeGraph graph(fixture.options, fixture.bodies(), clock);
  const auto result = graph.run();
  CHECK(result.committed == 50);
  const auto window = result.finished - result.begun;
  CHECK_FALSE(window.measured);
  CHECK(window.resources.empty());
  CHECK(window.committed == 50);
  CHECK(window.in_flight == 0);
  CHECK(window.input.busy_ns == 0);
  CHECK(phases_of(window).fill_ns.has_value());
}

TEST_CASE("a graph with one frame, whose bodies move the clock, has exact statistics") {
  fake::GraphFixture fixture;
  HandClock clock;
  fixture.plan = fake::planned(1, 1);
  auto bodies = fixture.bodies();
  bodies.next = [&, next = bodies.next] {
    if (fixture.position == 0) clock.advance(2);
    return next();
  };
  fixture.in_frame = [&](fake::Picture&, const std::string& stage) { clock.advance(stage == "read" ? 3 : 5); };
  fixture.in_batch = [&](fake::Pictures&, const std::string& stage) {
    clock.advance(stage == "preprocess" ? 7 : stage == "detect" ? 11 : stage == "encode" ? 13 : 17);
  };
  fake::FakeGraph graph(fixture.options, bodies, clock);
  const auto result = graph.run();
  const auto window = result.finished - result.begun;
  CHECK(window.time_ns == 2 + 3 + 5 + 7 + 11 + 13 + 17);
  CHECK(window.input.busy_ns == 2);
  CHECK(window.committed == 1);
  CHECK(window.admission_items == 8);
  CHECK(window.in_flight == 0);
  CHECK(phases_of(window).fill_ns == 3 + 5 + 7 + 11 + 13 + 17);
  CHECK(phases_of(window).drain_ns == 3 + 5 + 7 + 11 + 13 + 17);
  CHECK_FALSE(phases_of(window).steady_rate);
  REQUIRE(window.resources.size() == 4);
  const auto& [read, workers, lane, commit] =
      std::tie(window.resources[0], window.resources[1], window.resources[2], window.resources[3]);
  CHECK(read.total.name == "read");
  CHECK(read.total.busy_ns == 3);
  CHECK(workers.total.name == "workers");
  CHECK(workers.total.busy_ns == 18);
  REQUIRE(workers.parts.size() == 2);
  CHECK(workers.parts[0].name == "decode");
  CHECK(workers.parts[0].busy_ns == 5);
  CHECK(workers.parts[1].busy_ns == 13);
  CHECK(lane.total.busy_ns == 18);
  CHECK(read.total.unit == Unit::frames);
  CHECK(workers.total.unit == Unit::tasks);
  CHECK(workers.parts[0].unit == Unit::frames);
  CHECK(workers.parts[1].unit == Unit::batches);
  CHECK(lane.total.unit == Unit::batches);
  CHECK(lane.parts[0].unit == Unit::batches);
  CHECK(commit.total.unit == Unit::batches);
  CHECK_FALSE(workers.in_turn);
  CHECK(lane.in_turn);
  CHECK(lane.parts[0].busy_ns == 7);
  CHECK(lane.parts[1].busy_ns == 11);
  CHECK(lane.parts[1].latency.quantile_ns(0.5) == 11);
  CHECK(commit.total.busy_ns == 17);
  CHECK(commit.total.starved_ns == window.time_ns - 17);
}

TEST_CASE("time without credits is counted to the nanosecond") {
  HandClock clock;
  Meter meter("gate", 1, clock);
  const Trace trace;
  Gate gate(1, 1, meter, trace);
  std::atomic<int> claims{0};
  gate.open([&] { ++claims; }, [&] { --claims; });
  const int credit = gate.take(true).value();
  clock.advance(100);
  std::jthread waiting([&] { static_cast<void>(gate.take(true)); });
  while (claims != 0) std::this_thread::yield();
  clock.advance(40);
  CHECK(meter.read().busy_ns == 40);  // the source still has no credit
  gate.settle();
  gate.give_back(std::array{credit});
  waiting.join();
  clock.advance(100);
  CHECK(meter.read().busy_ns == 40);
}

TEST_CASE("time without credits is split by what the source lacks") {
  HandClock clock;
  Meter meter("gate", 1, clock);
  const Trace trace;
  Gate gate(2, 1, meter, trace);
  std::atomic<int> claims{0};
  gate.open([&] { ++claims; }, [&] { --claims; });
  const auto wait_until_unclaimed = [&] {
    while (claims != 0) std::this_thread::yield();
  };
  const int first = gate.take(true).value();
  {
    std::jthread waiting([&] { static_cast<void>(gate.take(true)); });
    wait_until_unclaimed();
    clock.advance(10);  // a credit is free, but the first frame is being read
    gate.short_of_bytes(true);
    clock.advance(20);
    gate.short_of_bytes(false);
    clock.advance(5);
    gate.settle();
  }
  {
    std::jthread waiting([&] { static_cast<void>(gate.take(true)); });
    wait_until_unclaimed();
    clock.advance(40);  // both credits are taken
    gate.settle();
    clock.advance(2);
    CHECK(gate.waits().frames_ns == 42);  // the source still waits
    gate.short_of_bytes(true);            // of files
    gate.short_of_bytes(true);            // of pixels
    gate.short_of_bytes(false);
    clock.advance(1);
    gate.give_back(std::array{first});
  }
  clock.advance(100);
  const CreditWaits waits = gate.waits();
  CHECK(waits.read_ahead_ns == 15);
  CHECK(waits.bytes_ns == 21);
  CHECK(waits.frames_ns == 42);
  CHECK(meter.read().busy_ns == 15 + 21 + 42);
  CHECK((gate.waits() - waits).bytes_ns == 0);
}

TEST_CASE("the gate of a graph knows that frames wait for bytes") {
  fake::GraphFixture fixture;
  fixture.options.admission_items = 16;  // the memory is enough for eight
  fixture.plan = fake::planned(40, 4);
  for (auto& picture : fixture.plan) picture.working = 0;
  std::optional<fake::FakeGraph> graph;
  fixture.in_batch = [&](fake::Pictures& batch, const std::string& stage) {
    // The first batch stays in its lane until the source has waited.
    while (stage == "detect" && batch.frames.front()->batch == 0 && graph->snapshot().credit_waits.bytes_ns == 0)
      std::this_thread::yield();
  };
  graph.emplace(fixture.options, fixture.bodies(), fixture.clock);
  CHECK(graph->run().committed == 40);
  CHECK(graph->snapshot().credit_waits.bytes_ns > 0);
}

TEST_CASE("cores and CPU time") {
  const auto before = process_cpu_ns();
  CHECK(before > 0);
  CHECK(process_cpu_ns() >= before);
  CHECK(available_cores() > 0);
  CHECK(available_cores() <= std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace millrace
