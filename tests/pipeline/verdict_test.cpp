// The verdict over hand-made snapshots, one for each kind of bottleneck.
#include <doctest/doctest.h>

#include "pipeline/verdict.hpp"
#include "tests/pipeline/windows.hpp"

namespace millrace {
namespace {

using namespace windows;

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

TEST_CASE("the sentence states a predicted gain instead of the bound") {
  const auto bound = judge({}, lane_bound());
  const auto verdict = judge({}, lane_bound(), {{"detect x2", 0.312}, {"segment x2", 0.1}, {"others=0", 0.2}});
  CHECK(verdict.kind == bound.kind);
  CHECK(verdict.stage == bound.stage);
  CHECK(verdict.gain == 0.312);
  CHECK(verdict.gain_without_others == 0);  // nobody else used the cores
  CHECK(verdict.sentence.ends_with(
      " If `detect` were twice as fast, the run would gain about 31 %: then `decode` is the limit."));
  // A prediction can be slightly negative. A gain is not.
  CHECK(judge({}, lane_bound(), {{"detect x2", -0.01}}).gain == 0);
  CHECK(judge({}, lane_bound(), {{"segment x2", 0.1}}).sentence == bound.sentence);
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
  CHECK(verdict.sentence ==
        "`encoder` holds the run back: the GPU was busy 94 % of the time (of that time: encoder 64 %, decoder 26 %, "
        "detector "
        "11 %). These are times of kernels alone, and the lanes wait for them. The source had no credits 90 % "
        "of the time. Runner-up: the workers (mostly `decode`) at 73 %. If `encoder` were twice as fast, the run would "
        "gain at most 37 %: then `decode` is the limit.");

  // Kernels of different lanes run at the same time.
  auto& all = window.resources.back();
  all.parts.push_back(reading("detect operations", 1, 0.03));
  all.total.busy_ns = seconds(10.8);
  CHECK(judge({}, window)
            .sentence.starts_with(
                "`encoder` holds the run back: the GPU was busy all the time: one after another, its kernels would "
                "take 108 % of "
                "it (of that time: encoder 56 %, decoder 22 %, detector 9 %). These are times of kernels alone,"));

  // If the GPU is not full, lanes are busy with something else: launches, or a host that is too slow.
  window.resources.back().total.busy_ns = seconds(5);
  CHECK(judge({}, window).resource == "lane");
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

TEST_CASE("too few credits are the bottleneck, and the sentence names what was missing longest") {
  auto it = lane_bound();
  it.credit_waits = {.frames_ns = seconds(5), .read_ahead_ns = seconds(3), .bytes_ns = seconds(1)};
  it.resources[1].total.busy_ns = seconds(6);
  it.resources[2].total.busy_ns = seconds(15);
  auto verdict = judge({}, it);
  CHECK(verdict.kind == Verdict::Kind::credits);
  CHECK(verdict.stage == "detect");
  CHECK(verdict.runner_up == "decode");
  CHECK(verdict.sentence ==
        "The gate holds the run back: the source had no credits 90 % of the time. The busiest part is the "
        "lane section (mostly `detect`) with 50 %. Runner-up: the workers (mostly `decode`) at 30 %. Mostly, "
        "the maximum number of pictures was in the pipeline: raise admission_items, now 96.");
  it.bytes.queued_ns = seconds(51);
  it.credit_waits.bytes_ns = seconds(6);
  CHECK(judge({}, it).sentence.ends_with("Mostly, pictures waited for bytes (5.1 on average): raise byte_budget."));
  it.credit_waits.read_ahead_ns = seconds(7);
  CHECK(judge({}, it).sentence.ends_with("Mostly, the maximum number of pictures was being read: raise read_ahead."));
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
