// Verdicts about a segmenter with a team of two on two cores, with files of /proc that the test writes. The test moves
// the time, and does the work of all stages one after another.
#include <doctest/doctest.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <future>
#include <string>
#include <thread>

#include "pipeline/system_clock.hpp"
#include "pipeline/verdict.hpp"
#include "tests/pipeline/proc_folder.hpp"

namespace millrace {
namespace {

constexpr double cores = 2;

std::int64_t ns(double seconds) { return std::llround(seconds * 1e9); }

/// Reads waits for a core and times of the machine from files. Time on a core is no file, so the test gives it.
class GivenClock final : public Clock {
 public:
  explicit GivenClock(const std::string& proc) : system_(proc, proc) {}
  [[nodiscard]] std::int64_t now_ns() const noexcept override { return ns(now_s); }
  [[nodiscard]] std::optional<CoreTime> core_time() const noexcept override {
    auto times = system_.core_time();
    if (times) times->on_core_ns = ns(own_s);
    if (times) times->team_on_core_ns = ns(team_s);
    return times;
  }
  void adopt_team() const noexcept override { system_.adopt_team(); }
  [[nodiscard]] MachineTime machine_time() const override { return system_.machine_time(); }

  double now_s = 0, own_s = 0, team_s = 0;

 private:
  const SystemClock system_;
};

/// The machine, and the thread of a lane with the other thread of its team.
class Machine {
 public:
  /// `share` of a core is what each thread gets while it could run. The rest of all cores is busy with `others`.
  Machine(double share, bool others) : share_(share), others_(others), member_([this] { wait(); }) {
    tasks_ = {::gettid(), tid_.get_future().get()};
    for (const pid_t task : tasks_) proc_.write(path_of(task) + "/comm", "lane\n");
    write();
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() {
    end_.set_value();
    member_.join();
  }

  /// Work that takes `core_s` on each of the threads of the team (2), or on the own thread alone (1).
  void work(double core_s, int threads) {
    const double took_s = core_s / share_, delay_s = took_s - core_s;
    clock.now_s += took_s;
    clock.own_s += core_s;
    if (threads == 1) {
      delays_s_[0] += delay_s;
    } else {
      // The worst case: the thread of the lane sleeps while it waits for the member, so its own file shows no delay.
      clock.team_s += core_s;
      delays_s_[1] += delay_s;
    }
    used_s += core_s * threads;
    busy_s_ += others_ ? took_s * cores : core_s * threads;
    write();
  }

 private:
  static std::string path_of(pid_t task) { return "self/task/" + std::to_string(task); }

  void wait() {
    tid_.set_value(::gettid());
    end_.get_future().wait();
  }

  void write() const {
    for (std::size_t i = 0; i < tasks_.size(); ++i)
      proc_.write(path_of(tasks_[i]) + "/schedstat", "0 " + std::to_string(ns(delays_s_[i])) + " 1\n");
    // Only the sum over the cores that this process may use counts, so one of them can have all.
    cpu_set_t allowed;
    REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    int core = 0;
    while (!CPU_ISSET(static_cast<std::size_t>(core), &allowed)) ++core;
    const auto ticks = std::llround(busy_s_ * static_cast<double>(sysconf(_SC_CLK_TCK)));
    proc_.write("stat", "cpu" + std::to_string(core) + " " + std::to_string(ticks) + " 0 0 0 0 0 0 0 0 0\n");
  }

  const ProcFolder proc_;
  const double share_;
  const bool others_;
  std::array<pid_t, 2> tasks_{};
  std::array<double, 2> delays_s_{};
  double busy_s_ = 0;
  std::promise<pid_t> tid_;
  std::promise<void> end_;
  std::thread member_;

 public:
  GivenClock clock{proc_.path()};
  double used_s = 0;  // on cores, by the run
};

void serve(Meter& meter, Machine& machine, double core_s, int threads = 1) {
  meter.arrive();
  const Service service = meter.begin();
  if (core_s > 0) machine.work(core_s, threads);
  meter.end(service, false);
}

Verdict verdict_of(double share, bool others) {
  Machine machine(share, others);
  Statistics statistics({.max_batch = 1, .admission_items = 2, .lanes = 1, .workers = 1}, {"decode"},
                        {"detect", "segment"}, {"encode"}, machine.clock);
  machine.clock.adopt_team();
  const auto snapshot = [&] {
    Snapshot now = statistics.snapshot();
    now.cpu_ns = ns(machine.used_s);
    now.cores = cores;
    return now;
  };
  const Snapshot begun = snapshot();
  for (int picture = 0; picture < 200; ++picture) {
    serve(statistics.input, machine, 0);
    const std::array admitted{statistics.count_planned()};
    serve(statistics.read, machine, 0.0001);
    serve(statistics.frame_stages[0], machine, 0.01);
    statistics.batch.arrive();
    statistics.batch.leave(1);
    statistics.lane.arrive();
    const Service lane = statistics.lane.begin();
    serve(statistics.lane_stages[0], machine, 0.02, 2);
    serve(statistics.lane_stages[1], machine, 0.3, 2);
    statistics.lane.end(lane, false);
    serve(statistics.batch_stages[0], machine, 0.005);
    serve(statistics.commit, machine, 0.0001);
    statistics.count_committed(admitted);
  }
  return judge(begun, snapshot());
}

TEST_CASE("beside programs that take all cores, they are named and not the stage that waits for a core") {
  // The run has 0.1 of 2 cores. By wall time, `segment` would be busy for 90 % of the run.
  const Verdict verdict = verdict_of(0.05, true);
  CHECK(verdict.kind == Verdict::Kind::others);
  CHECK(verdict.other_cores.value_or(0) == doctest::Approx(1.9).epsilon(0.01));
  CHECK(verdict.sentence.starts_with("Other programs hold the run back: they took 1.9 of 2.0 cores"));
  CHECK(verdict.binds_without_others == "segment");
}

TEST_CASE("alone on the cores, the segmenter is named") {
  const Verdict verdict = verdict_of(1, false);
  CHECK(verdict.kind == Verdict::Kind::stage);
  CHECK(verdict.stage == "segment");
  CHECK(verdict.other_cores.value_or(1) == doctest::Approx(0).epsilon(0.01));
  CHECK(verdict.sentence.find("ther programs") == std::string::npos);
}

}  // namespace
}  // namespace millrace
