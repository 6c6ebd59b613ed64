// The verdict where threads wait for cores, or the machine for memory.
#include <doctest/doctest.h>

#include "pipeline/verdict.hpp"
#include "tests/pipeline/windows.hpp"

namespace millrace {
namespace {

using namespace windows;

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
  const auto predicted = judge(begun(), it, {{"others=0", 1.1}});
  CHECK(predicted.kind == Verdict::Kind::others);
  CHECK(predicted.gain_without_others == 1.1);
  CHECK(predicted.sentence.ends_with("Without them, the run would gain about 110 %: then `detect` is the limit."));
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
  CHECK(judge(begun(), contended(0.1, 0.1, 2.5), {{"others=0", 0.07}})
            .sentence.ends_with(" Other programs took 2.5 of 4.0 cores: without them, the run would gain about 7 %."));
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

TEST_CASE("a stage that waits for a disk names the disk") {
  Snapshot it = lane_bound();
  Reading& read = it.resources[0].total;
  read.busy_ns = read.measured_ns = read.servers * seconds(9.9);
  read.on_core_ns = seconds(0.4);
  for (const double share : {0.9, 0.1}) {
    CAPTURE(share);
    it.resources[2].total.busy_ns = seconds(3);
    for (auto& part : it.resources[2].parts) part.busy_ns = seconds(1);
    it.resources[1].total.busy_ns = seconds(2);
    for (auto& part : it.resources[1].parts) part.busy_ns = seconds(1);
    it.machine.io_stall_ns = seconds(10 * share);
    const auto verdict = judge(begun(), it);
    CHECK(verdict.stage == "read");
    CHECK(verdict.disk_stall == doctest::Approx(share));
    CHECK(named(verdict) == (share > 0.5 ? "disk reads" : "read"));
  }
  CHECK(judge(begun(), it).sentence.starts_with("`read` holds the run back"));
  it.machine.io_stall_ns = seconds(9);
  CHECK(judge(begun(), it)
            .sentence.starts_with("Disk reads hold the run back: threads of this machine waited for a disk 90 % of the "
                                  "time. The busiest stage is "
                                  "`read`: it was busy 99 % of the time, 4 at a time, and starved "));
  // A stage that computes does not wait for a disk.
  read.on_core_ns = read.busy_ns;
  CHECK(judge(begun(), it).kind == Verdict::Kind::stage);
  // The same for the stage that writes.
  read.busy_ns = read.measured_ns = seconds(0.1);
  Reading& commit = it.resources.back().total;
  commit.busy_ns = commit.measured_ns = seconds(9.9);
  commit.on_core_ns = seconds(0.1);
  CHECK(named(judge(begun(), it)) == "disk writes");
}

}  // namespace
}  // namespace millrace
