// The verdict over hand-made snapshots, one for each kind of bottleneck.
#include <doctest/doctest.h>

#include "pipeline/verdict.hpp"

namespace millrace {
namespace {

constexpr std::int64_t second = 1'000'000'000;

std::int64_t seconds(double value) { return static_cast<std::int64_t>(value * second); }

Reading reading(const std::string& name, int servers, double busy_s, double starved_s = 0, double queued_s = 0) {
  Reading it;
  it.name = name;
  it.servers = servers;
  it.items = 100;
  it.unit = name == "read" || name == "decode" ? Unit::frames : name == "workers" ? Unit::tasks : Unit::batches;
  it.busy_ns = seconds(busy_s);
  it.starved_ns = seconds(starved_s);
  it.queued_ns = seconds(queued_s);
  return it;
}

/// Ten seconds of a pipeline whose bottleneck is the lanes.
Snapshot lane_bound() {
  Snapshot it;
  it.time_ns = 10 * second;
  it.planned = 1000;
  it.committed = 990;
  it.input = reading("input", 1, 0.5);
  it.without_credits = reading("gate", 1, 9);
  it.bytes = reading("bytes", 0, 0);
  it.batch = reading("batch", 0, 0);
  it.resources = {{reading("read", 4, 4), {}},
                  {reading("workers", 2, 14.6), {reading("decode", 2, 12.6), reading("encode", 2, 2)}},
                  {reading("lane", 3, 29.1, 0.3, 32),
                   {reading("preprocess", 3, 2.1), reading("detect", 3, 21), reading("segment", 3, 6)}},
                  {reading("commit", 1, 2), {}}};
  it.cpu_ns = seconds(16);
  it.cores = 4;
  it.admission_items = 96;
  return it;
}

TEST_CASE("a lane that is the limit is named by its largest part, with evidence and a what-if") {
  const auto verdict = judge({}, lane_bound());
  CHECK(verdict.kind == Verdict::Kind::stage);
  CHECK(verdict.stage == "detect");
  CHECK(verdict.resource == "lane");
  CHECK(verdict.utilisation == doctest::Approx(0.97));
  CHECK(verdict.starved == doctest::Approx(0.01));
  CHECK(verdict.mean_queue == doctest::Approx(3.2));
  CHECK(verdict.without_credits == doctest::Approx(0.9));
  CHECK(verdict.runner_up == "decode");
  CHECK(verdict.runner_up_utilisation == doctest::Approx(0.73));
  // The lane would be busy 0.97 - 0.35 = 0.62 of today's time, the workers 0.73 as before.
  CHECK(verdict.gain == doctest::Approx(1 / 0.73 - 1));
  CHECK(verdict.then_binds == "decode");
  CHECK(verdict.sentence ==
        "`detect` holds the run back: the lane section was busy 97 % of the time, 3 at a time (of that time: detect 72 "
        "%, segment 21 %, preprocess 7 %), and starved 1 %, with 3.2 batches waiting before it; the source had no "
        "credits "
        "90 % "
        "of the time. Runner-up: the workers (mostly `decode`) at 73 %. If `detect` were twice as fast, the run would "
        "gain at most 37 %: then "
        "`decode` is the limit.");
}

TEST_CASE("if the models' own time fills the GPU, it is the bottleneck, and not the lanes that wait for it") {
  auto window = lane_bound();
  ResourceReading gpu{reading("GPU", 1, 9.4),
                      {reading("detector", 1, 1), reading("encoder", 1, 6), reading("decoder", 1, 2.4)}};
  gpu.waited_for_by_lanes = true;
  window.resources.push_back(gpu);
  const auto verdict = judge({}, window);
  CHECK(verdict.kind == Verdict::Kind::stage);
  CHECK(verdict.stage == "encoder");
  CHECK(verdict.resource == "GPU");
  CHECK(verdict.utilisation == doctest::Approx(0.94));
  CHECK(verdict.runner_up == "decode");
  CHECK(verdict.then_binds == "decode");  // 0.73, against 0.94 - 0.30
  CHECK(
      verdict.sentence ==
      "`encoder` holds the run back: the GPU was busy 94 % of the time (of that time: encoder 64 %, decoder 26 %, "
      "detector "
      "11 %), by the time that each call takes alone; lanes wait for each other there. The source had no credits 90 % "
      "of the time. Runner-up: the workers (mostly `decode`) at 73 %. If `encoder` were twice as fast, the run would "
      "gain at most 37 %: then `decode` is the limit.");

  // If the GPU is not full, lanes are busy with something else: launches, or a host that is too slow.
  window.resources.back().total.busy_ns = seconds(5);
  CHECK(judge({}, window).resource == "lane");
}

/// The first snapshot of a run on a machine that provides all times.
Snapshot begun() {
  Snapshot it;
  it.machine = {4, 0, 0, 0, 0, 0, 0};
  return it;
}

/// lane_bound(), with these shares of the busy time spent waiting for a core, and these cores taken by others.
Snapshot contended(double lane_without_core, double workers_without_core, double other_cores) {
  auto it = lane_bound();
  const auto split = [](ResourceReading& resource, double no_core) {
    const auto one = [no_core](Reading& reading) {
      reading.measured_ns = reading.busy_ns;
      reading.no_core_ns = static_cast<std::int64_t>(no_core * static_cast<double>(reading.busy_ns));
      // The rest of the time, a device computes.
      reading.on_core_ns = reading.core_ns = (reading.measured_ns - reading.no_core_ns) * 3 / 10;
    };
    one(resource.total);
    for (Reading& part : resource.parts) one(part);
  };
  split(it.resources[1], workers_without_core);
  split(it.resources[2], lane_without_core);
  it.cpu_ns = it.resources[1].total.core_ns + it.resources[2].total.core_ns;
  it.machine.cores = 4;
  it.machine.busy_ns = it.cpu_ns + seconds(10 * other_cores);
  return it;
}

TEST_CASE("other programs that take the cores are named, with what they took and what they cost") {
  // Workers at a low priority are busy all the time, because others have their cores.
  auto it = contended(0.6, 0.9, 3.5);
  it.resources[1].total.busy_ns = it.resources[1].total.measured_ns = seconds(20);
  it.resources[1].total.no_core_ns = seconds(18);
  const auto verdict = judge(begun(), it);
  CHECK(verdict.kind == Verdict::Kind::others);
  CHECK(verdict.other_cores == doctest::Approx(3.5));
  CHECK(verdict.stage == "detect");  // not `decode`: its demand is a tenth of its busy time
  CHECK(verdict.no_core == doctest::Approx(0.6));
  // Without any waits for cores, the lane would be busy for 0.39 of the time. A few waits for the workers remain.
  CHECK(verdict.gain_without_others > 1.2);
  CHECK(verdict.gain_without_others < 1 / (0.97 * 0.4) - 1);
  CHECK(verdict.binds_without_others == "detect");
  CHECK(verdict.sentence.starts_with(
      "Other programs hold the run back: they took 3.5 of 4.0 cores, and the lane section waited for a core 60 % of "
      "its busy time. Without them, the run would gain at most "));
  CHECK(verdict.sentence.ends_with(" %: then `detect` is the limit."));
  // Stolen time counts too.
  it.machine.busy_ns = it.cpu_ns;
  it.machine.stolen_ns = seconds(35);
  CHECK(judge(begun(), it).kind == Verdict::Kind::others);
  CHECK(judge(begun(), it).other_cores == doctest::Approx(3.5));
}

TEST_CASE("other programs that cost little are mentioned, and the stage stays the bottleneck") {
  const auto verdict = judge(begun(), contended(0.1, 0.1, 2.5));
  CHECK(verdict.kind == Verdict::Kind::stage);
  CHECK(verdict.stage == "detect");
  CHECK(verdict.gain_without_others > 0.05);
  CHECK(verdict.gain_without_others < 1 / 0.9 - 1);
  CHECK(verdict.sentence.find(" Other programs took 2.5 of 4.0 cores: without them, the run would gain at most ") !=
        std::string::npos);
  // Nobody else used the cores: the waits come from the run's own threads.
  const auto alone = judge(begun(), contended(0.3, 0.1, 0.01));
  CHECK(alone.gain_without_others == 0);
  CHECK(alone.sentence.find("Other programs") == std::string::npos);
  // Others on cores that the run did not need.
  const auto idle = judge(begun(), contended(0.01, 0, 1.9));
  CHECK(idle.kind == Verdict::Kind::stage);
  CHECK(idle.sentence.find("Other programs") == std::string::npos);
}

TEST_CASE("twice the cores help stages that wait for each other's cores, and not one stage that has all of them") {
  // The run uses all cores. `decode`, with one thread at a low priority, waits for those that the lane has.
  auto it = contended(0, 0.8, 0);
  it.cores = 2;
  it.machine.cores = 2;
  it.resources[1] = {reading("workers", 1, 9.9), {reading("decode", 1, 9.9)}};
  it.resources[2] = {reading("lane", 1, 6.2, 3.8), {reading("segment", 1, 6.2)}};
  const auto split = [](ResourceReading& resource, double no_core_s, double core_s) {
    for (Reading* one : {&resource.total, &resource.parts[0]}) {
      one->measured_ns = one->busy_ns;
      one->no_core_ns = seconds(no_core_s);
      one->on_core_ns = one->measured_ns - one->no_core_ns;
      one->core_ns = seconds(core_s);
    }
  };
  split(it.resources[1], 6, 3.9);
  split(it.resources[2], 0.5, 11.4);
  it.cpu_ns = it.machine.busy_ns.emplace(seconds(15.3));
  CHECK(judge(begun(), it).kind == Verdict::Kind::cores);
  CHECK(judge(begun(), it).sentence.starts_with("The cores hold the run back: "));
  // Others that took a part of them are in the evidence.
  auto shared = it;
  shared.machine.busy_ns = seconds(18.3);
  CHECK(judge(begun(), shared).kind == Verdict::Kind::cores);
  CHECK(judge(begun(), shared)
            .sentence.starts_with(
                "The cores hold the run back: the run used 1.5 of 2.0 cores, and other programs 0.3. "));
  CHECK(
      judge(begun(), shared).sentence.find(" Other programs took 0.3 of 2.0 cores: without them, the run would gain") !=
      std::string::npos);
  // A lane whose team has all cores: more cores do not make it faster, because its team stays as it is.
  it.resources[2] = {reading("lane", 1, 9.9), {reading("segment", 1, 9.9)}};
  split(it.resources[2], 0.2, 19);
  it.resources[1] = {reading("workers", 1, 1), {reading("decode", 1, 1)}};
  split(it.resources[1], 0.5, 0.5);
  it.cpu_ns = it.machine.busy_ns.emplace(seconds(19.5));
  const auto verdict = judge(begun(), it);
  CHECK(verdict.kind == Verdict::Kind::stage);
  CHECK(verdict.stage == "segment");
  CHECK(verdict.cores > 0.95);
}

TEST_CASE("with a quota, programs on the cores that the run could not use anyway take nothing from it") {
  auto it = contended(0.6, 0.9, 3.5);
  REQUIRE(judge(begun(), it).kind == Verdict::Kind::others);
  // 4 of 64 cores by a quota. Others use 50 of the 64, and the waits come from the quota.
  it.machine.cores = 64;
  it.machine.busy_ns = it.cpu_ns + seconds(10 * 50);
  auto verdict = judge(begun(), it);
  CHECK(verdict.other_cores == doctest::Approx(0));
  CHECK(verdict.kind != Verdict::Kind::others);
  CHECK(verdict.sentence.find("Other programs") == std::string::npos);
  // They use 63: only one is left for the quota of 4.
  it.machine.busy_ns = it.cpu_ns + seconds(10 * 63);
  CHECK(judge(begun(), it).other_cores == doctest::Approx(3));
}

TEST_CASE("a gate that others make too small is not blamed on others that took nothing") {
  auto it = lane_bound();
  it.resources[1] = {reading("workers", 2, 6), {reading("decode", 2, 6)}};
  it.resources[2] = {reading("lane", 3, 15), {reading("detect", 3, 15)}};
  it.machine = {4, it.cpu_ns, 0, 0, 0, 0, 0};
  CHECK(judge(begun(), it).kind == Verdict::Kind::credits);
}

TEST_CASE("a machine without these times gives the verdict of the wall clock") {
  const auto verdict = judge(begun(), lane_bound());  // the counters were there at the start only
  CHECK_FALSE(verdict.other_cores.has_value());
  CHECK_FALSE(verdict.no_core.has_value());
  CHECK_FALSE(verdict.memory_stall.has_value());
  CHECK(verdict.kind == Verdict::Kind::stage);
}

TEST_CASE("a machine that swaps is named before the stage that it slows down") {
  auto it = lane_bound();
  it.machine.memory_stall_ns = seconds(6.2);
  const auto verdict = judge(begun(), it);
  CHECK(verdict.kind == Verdict::Kind::memory);
  CHECK(verdict.memory_stall == doctest::Approx(0.62));
  CHECK(verdict.sentence.starts_with(
      "Memory holds the run back: threads of this machine waited for it 62 % of the time, "
      "because it swaps or has to free memory. Lower gate.memory, or end other programs."));
  it.machine.memory_stall_ns = seconds(0.5);
  CHECK(judge(begun(), it).kind == Verdict::Kind::stage);
}

TEST_CASE("only the window between two snapshots counts") {
  auto from = lane_bound();
  auto to = lane_bound();
  to.time_ns += 10 * second;
  to.committed += 500;
  for (auto& resource : to.resources) resource.total.items += 100;
  to.resources[0].total.busy_ns += seconds(38);  // the readers, 4 of them
  to.resources[2].total.busy_ns += seconds(15);
  to.resources[2].parts[2].busy_ns += seconds(15);
  to.cpu_ns += seconds(5);
  const auto verdict = judge(from, to);
  CHECK(verdict.kind == Verdict::Kind::stage);
  CHECK(verdict.stage == "read");
  CHECK(verdict.utilisation == doctest::Approx(0.95));
  CHECK(verdict.cores == doctest::Approx(0.125));
  CHECK(verdict.runner_up == "segment");
  CHECK(verdict.sentence.starts_with(
      "`read` holds the run back: it was busy 95 % of the time, 4 at a time, and starved"));
}

TEST_CASE("commit and workers can be the limit") {
  auto it = lane_bound();
  it.resources[3].total = reading("commit", 1, 9.9, 0, 40);
  CHECK(judge({}, it).stage == "commit");
  it = lane_bound();
  it.resources[1].total.busy_ns = seconds(19.8);
  const auto verdict = judge({}, it);
  CHECK(verdict.stage == "decode");
  CHECK(verdict.sentence.find("the workers were busy 99 % of the time, 2 at a time (of that time: decode 64 %") !=
        std::string::npos);
}

TEST_CASE("twice as fast can still be the limit") {
  auto it = lane_bound();
  it.resources[2].total.busy_ns = seconds(30);
  it.resources[2].parts[1].busy_ns = seconds(3);
  it.resources[2].parts[2].busy_ns = seconds(15);
  it.resources[2].parts[0].busy_ns = seconds(12);
  const auto verdict = judge({}, it);
  CHECK(verdict.stage == "segment");
  CHECK(verdict.gain == doctest::Approx(1 / 0.75 - 1));
  CHECK(verdict.then_binds == "segment");
  CHECK(verdict.sentence.ends_with("at most 33 %, and it would still be the slowest."));
}

TEST_CASE("full cores are the bottleneck") {
  auto it = lane_bound();
  it.cpu_ns = seconds(39);
  const auto verdict = judge({}, it);
  CHECK(verdict.kind == Verdict::Kind::cores);
  CHECK(verdict.stage == "detect");
  CHECK(verdict.cores == doctest::Approx(0.975));
  CHECK(
      verdict.sentence.starts_with("The cores hold the run back: 4.0 cores were 98 % busy. The busiest stage is "
                                   "`detect`: the lane section was busy 97 % of the time"));
}

TEST_CASE("the cores are the limit after a what-if") {
  auto it = lane_bound();
  it.resources[1].total.busy_ns = seconds(2);
  it.resources[1].parts[0].busy_ns = seconds(1);
  it.cpu_ns = seconds(35.6);
  const auto verdict = judge({}, it);
  CHECK(verdict.kind == Verdict::Kind::stage);
  // 21 lane-seconds of detect halved are at most 10.5 of 40 core-seconds: 0.89 - 0.2625 is below the lane's 0.62.
  CHECK(verdict.then_binds == "cores");
  CHECK(verdict.gain == doctest::Approx(1 / 0.6275 - 1).epsilon(0.001));
}

TEST_CASE("a slow input is the bottleneck") {
  auto it = lane_bound();
  it.input.busy_ns = seconds(8.8);
  it.without_credits.busy_ns = 0;
  it.resources[2].total.busy_ns = seconds(12);
  const auto verdict = judge({}, it);
  CHECK(verdict.kind == Verdict::Kind::input);
  CHECK(verdict.stage == "decode");
  CHECK(verdict.utilisation == doctest::Approx(0.73));
  CHECK(verdict.runner_up == "detect");
  CHECK(verdict.runner_up_utilisation == doctest::Approx(0.4));
  CHECK(verdict.sentence ==
        "The input holds the run back: the source waited for it 88 % of the time. Busiest: the workers (mostly "
        "`decode`) with 73 %, then the lane section (mostly `detect`) with 40 %.");
}

TEST_CASE("an input that is busy but not the bottleneck is the runner-up") {
  auto it = lane_bound();
  it.input.busy_ns = seconds(8.8);
  const auto verdict = judge({}, it);
  CHECK(verdict.kind == Verdict::Kind::stage);
  CHECK(verdict.stage == "detect");
  CHECK(verdict.runner_up == "input");
  CHECK(verdict.sentence.find(" Runner-up: the input at 88 %.") != std::string::npos);
}

TEST_CASE("a source that waits is named before the first picture is finished") {
  Snapshot it;
  it.time_ns = 10 * second;
  it.input = reading("input", 1, 10);
  it.resources = {{reading("read", 4, 0), {}}, {reading("commit", 1, 0), {}}};
  it.resources[1].total.items = 0;
  it.cores = 4;
  it.admission_items = 96;
  const auto verdict = judge({}, it);
  CHECK(verdict.kind == Verdict::Kind::input);
  CHECK(verdict.stage.empty());
  CHECK(verdict.runner_up.empty());
  CHECK(verdict.sentence ==
        "The input holds the run back (a short run: 0 pictures came out in 0 batches, and filling and draining the "
        "pipeline takes 96 pictures): the source waited for it 100 % of the time.");
}

TEST_CASE("too few credits are the bottleneck, and the sentence names their kind") {
  auto it = lane_bound();
  it.resources[1].total.busy_ns = seconds(6);
  it.resources[2].total.busy_ns = seconds(15);
  auto verdict = judge({}, it);
  CHECK(verdict.kind == Verdict::Kind::credits);
  CHECK(verdict.stage == "detect");
  CHECK(verdict.runner_up == "decode");
  CHECK(verdict.sentence ==
        "The gate holds the run back: the source had no credits 90 % of the time. The busiest part is the "
        "lane section (mostly `detect`) with 50 %. Runner-up: the workers (mostly `decode`) at 30 %. Raise "
        "admission_items, now 96, or read_ahead.");
  it.bytes.queued_ns = seconds(51);
  verdict = judge({}, it);
  CHECK(verdict.sentence.ends_with("5.1 pictures waited for bytes: raise byte_budget."));
}

TEST_CASE("no single part is the bottleneck") {
  auto it = lane_bound();
  it.resources[1].total.busy_ns = seconds(6);
  it.resources[2].total.busy_ns = seconds(15);
  it.without_credits.busy_ns = seconds(1);
  const auto verdict = judge({}, it);
  CHECK(verdict.kind == Verdict::Kind::balanced);
  CHECK(verdict.sentence ==
        "No part holds the run back by itself: the busiest is the lane section (mostly `detect`) with 50 %. The "
        "source had no credits 10 % of the time and waited for input 5 %. Runner-up: the workers (mostly `decode`) at "
        "30 %.");
}

/// A slow model on one lane with fourteen frames, in batches of one.
Snapshot slow() {
  auto it = lane_bound();
  it.time_ns = seconds(26.6);
  it.planned = it.committed = 14;
  it.admission_items = 16;
  it.without_credits.busy_ns = 0;
  it.resources = {{reading("read", 4, 0.1), {}},
                  {reading("workers", 1, 2.7, 23.9), {reading("decode", 1, 2.6), reading("encode", 1, 0.1)}},
                  {reading("lane", 1, 26.5, 0.1, 133),
                   {reading("preprocess", 1, 0.5), reading("detect", 1, 1), reading("segment", 1, 25)}},
                  {reading("commit", 1, 0.1), {}}};
  it.resources[3].total.items = 14;
  it.cpu_ns = seconds(20);
  return it;
}

TEST_CASE("a short run has a verdict, and the sentence says how short it was") {
  const auto verdict = judge({}, slow());
  CHECK(verdict.kind == Verdict::Kind::stage);
  CHECK(verdict.stage == "segment");
  CHECK(verdict.runner_up == "decode");
  CHECK(verdict.thin ==
        "a short run: 14 pictures came out in 14 batches, and filling and draining the pipeline takes 16 pictures");
  CHECK(verdict.sentence ==
        "`segment` holds the run back (" + verdict.thin +
            "): the lane section was busy 100 % of the time (of that time: segment 94 %, detect 4 %, preprocess 2 %), "
            "and "
            "starved "
            "0 %, with 5.0 batches waiting before it; the source had no credits 0 % of the time. Runner-up: the "
            "workers (mostly `decode`) at 10 %. If `segment` were twice as fast, the run would gain at most 90 %, and "
            "it would still be the slowest.");
}

TEST_CASE("a run of few batches with many frames is called short for that reason") {
  auto it = lane_bound();
  it.resources[3].total.items = 7;
  const auto verdict = judge({}, it);
  CHECK(verdict.kind == Verdict::Kind::stage);
  CHECK(verdict.stage == "detect");
  CHECK(verdict.sentence.starts_with(
      "`detect` holds the run back (a short run: 990 pictures came out in only 7 batches): "
      "the lane section was busy 97 %"));
  it.resources[3].total.items = 8;
  CHECK(judge({}, it).thin.empty());
}

TEST_CASE("the sentence of every kind names its evidence") {
  auto it = slow();
  it.cpu_ns = seconds(26.6 * 4);
  CHECK(judge({}, it).sentence.starts_with("The cores hold the run back (a short run: 14 pictures"));
  it = slow();
  it.resources[2].total.busy_ns = seconds(13.3);
  CHECK(judge({}, it).sentence.starts_with("No part holds the run back by itself (a short run: 14 pictures"));
  it.without_credits.busy_ns = seconds(20);
  CHECK(judge({}, it).sentence.starts_with("The gate holds the run back (a short run: 14 pictures"));
  it.input.busy_ns = seconds(20);
  CHECK(judge({}, it).sentence.starts_with("The input holds the run back (a short run: 14 pictures"));
}

TEST_CASE("a window inside a run in which few pictures finished") {
  auto from = slow();
  auto to = from;
  to.time_ns += 10 * second;
  to.committed += 1;
  to.resources[3].total.items += 1;
  to.resources[2].total.busy_ns += seconds(9.5);
  to.resources[2].parts[2].busy_ns += seconds(9.5);
  auto verdict = judge(from, to);
  CHECK(verdict.kind == Verdict::Kind::stage);
  CHECK(verdict.stage == "segment");
  CHECK(verdict.utilisation == doctest::Approx(0.95));
  CHECK(verdict.runner_up.empty());  // nothing else was busy
  CHECK(verdict.thin == "a short window: 1 picture came out in only 1 batch");
  to.committed = from.committed;
  to.resources[3].total.items = from.resources[3].total.items;
  verdict = judge(from, to);
  CHECK(verdict.kind == Verdict::Kind::too_short);
  CHECK(verdict.stage == "segment");
  CHECK(verdict.sentence ==
        "Too short to judge: nothing came out in 10.0 s. Busiest: the lane section (mostly `segment`) with 95 %.");
}

TEST_CASE("a very short run has no bottleneck, but still a busiest stage") {
  auto it = slow();
  it.time_ns = seconds(0.9);
  it.committed = 1;
  it.resources[2].total.busy_ns = seconds(0.36);
  it.resources[1].total.busy_ns = seconds(0.18);
  const auto verdict = judge({}, it);
  CHECK(verdict.kind == Verdict::Kind::too_short);
  CHECK(verdict.stage == "segment");
  CHECK(
      verdict.sentence ==
      "Too short to judge: 1 picture came out in 900 ms. Busiest: the lane section (mostly `segment`) with 40 %, then "
      "the workers (mostly `decode`) with 20 %.");
}

TEST_CASE("if no time passed or nothing was busy, no stage is named") {
  const auto nothing = judge({}, {});
  CHECK(nothing.kind == Verdict::Kind::too_short);
  CHECK(nothing.stage.empty());
  CHECK(nothing.runner_up.empty());
  CHECK(nothing.sentence == "Too short to judge: nothing came out in 0 ms.");
  const auto same = judge(lane_bound(), lane_bound());
  CHECK(same.kind == Verdict::Kind::too_short);
  CHECK(same.stage.empty());
  auto idle = lane_bound();
  idle.time_ns += 10 * second;
  CHECK(judge(lane_bound(), idle).stage.empty());
}

TEST_CASE("resources that a caller appends are judged like the others") {
  auto it = lane_bound();
  it.resources.push_back({reading("GPU", 1, 9.8), {reading("GPU encoder", 1, 7), reading("GPU decoder", 1, 2.8)}});
  const auto verdict = judge({}, it);
  CHECK(verdict.stage == "GPU encoder");
  CHECK(verdict.resource == "GPU");
  CHECK(verdict.sentence.find("the GPU was busy 98 % of the time (of that time: GPU encoder 71 %") !=
        std::string::npos);
}

}  // namespace
}  // namespace millrace
