// The times of Linux: with files of /proc that the test writes, and with the threads of this process.
#include <doctest/doctest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "pipeline/system_clock.hpp"
#include "pipeline/thread_pool.hpp"
#include "tests/pipeline/proc_folder.hpp"

namespace millrace {
namespace {

std::string own_schedstat() { return "self/task/" + std::to_string(::gettid()) + "/schedstat"; }

// Uses a core until `work` says that it is enough.
template <class Done>
void use_core(const Done& done) {
  std::atomic<int> sink{0};
  while (!done()) ++sink;
}

TEST_CASE("without the files of Linux, core times and machine times are unknown, not zero") {
  const ProcFolder proc;
  const SystemClock clock(proc.path(), proc.path());
  CHECK_FALSE(clock.core_time().has_value());
  const MachineTime machine = clock.machine_time();
  CHECK_FALSE(machine.busy_ns.has_value());
  CHECK_FALSE(machine.stolen_ns.has_value());
  CHECK_FALSE(machine.throttled_ns.has_value());
  CHECK_FALSE(machine.memory_stall_ns.has_value());
  CHECK_FALSE(machine.cpu_stall_ns.has_value());
  CHECK_FALSE(machine.io_stall_ns.has_value());
  proc.write(own_schedstat(), "not a number\n");
  CHECK_FALSE(SystemClock(proc.path(), proc.path()).core_time().has_value());
}

TEST_CASE("the run delay is the second number of schedstat, and is read anew each time") {
  const ProcFolder proc;
  proc.write(own_schedstat(), "5000 1200 3\n");
  const SystemClock clock(proc.path(), proc.path());
  const auto before = clock.core_time();
  REQUIRE(before.has_value());
  CHECK(before->waiting_ns == 1200);
  proc.write(own_schedstat(), "9000 123456789012 4\n");
  CHECK(clock.core_time().value_or(CoreTime{}).waiting_ns == 123456789012);
}

TEST_CASE("machine times count the allowed cores only, in nanoseconds") {
  const ProcFolder proc;
  cpu_set_t allowed;
  REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  std::size_t core = 0;
  while (!CPU_ISSET(core, &allowed)) ++core;
  std::size_t forbidden = 0;
  while (CPU_ISSET(forbidden, &allowed)) ++forbidden;
  const auto line = [](std::size_t number, const std::string& values) {
    return "cpu" + std::to_string(number) + " " + values + "\n";
  };
  // user nice system idle iowait irq softirq steal guest guest_nice, in ticks of 1/100 s
  proc.write("stat", "cpu  900 900 900 900 900 900 900 900 900 900\n" + line(core, "100 20 30 4000 50 6 7 80 9 1") +
                         line(forbidden, "70000 70000 70000 70000 70000 70000 70000 70000 0 0") + "intr 12345\n");
  proc.write("pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500\nfull avg10=0.00 total=9\n");
  proc.write("pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n");
  proc.write("pressure/io", "some avg10=1.00 avg60=0.00 avg300=0.00 total=40\n");
  const MachineTime machine = SystemClock(proc.path(), proc.path()).machine_time();
  REQUIRE(sysconf(_SC_CLK_TCK) == 100);
  CHECK(machine.busy_ns == (100 + 20 + 30 + 6 + 7) * 10'000'000LL);  // neither idle, iowait, steal nor guest
  CHECK(machine.cores == 1);
  CHECK(machine.stolen_ns == 80 * 10'000'000LL);
  CHECK(machine.memory_stall_ns == 2'500'000);
  CHECK(machine.cpu_stall_ns == 7'000);
  CHECK(machine.io_stall_ns == 40'000);
  CHECK_FALSE(machine.throttled_ns.has_value());  // no quota
}

TEST_CASE("the throttled time is that of the nearest cgroup with a quota, in both versions of cgroups") {
  const ProcFolder root;
  SUBCASE("v2") {
    root.write("self/cgroup", "0::/jobs/one\n");
    root.write("jobs/one/cpu.max", "max 100000\n");
    root.write("jobs/one/cpu.stat", "usage_usec 1\nthrottled_usec 1\n");
    root.write("jobs/cpu.max", "50000 100000\n");
    root.write("jobs/cpu.stat", "usage_usec 77\nnr_throttled 3\nthrottled_usec 1234\n");
  }
  SUBCASE("v1") {
    root.write("self/cgroup", "5:memory:/x\n3:cpu,cpuacct:/jobs\n");
    root.write("cpu/jobs/cpu.cfs_quota_us", "50000\n");
    root.write("cpu/jobs/cpu.cfs_period_us", "100000\n");
    root.write("cpu/jobs/cpu.stat", "nr_periods 9\nnr_throttled 3\nthrottled_time 1234000\n");
  }
  CHECK(SystemClock(root.path(), root.path()).machine_time().throttled_ns == 1'234'000);
}

TEST_CASE("a thread's time on a core grows while it computes, and that of its team only after adopt_team()") {
  const SystemClock clock;
  std::thread([&] {
    name_this_thread("team_of_test");
    const auto begun = clock.core_time();
    if (!begun) {
      MESSAGE("skipped: this system has no schedstat");
      return;
    }
    use_core([&] { return clock.core_time()->on_core_ns > begun->on_core_ns + 3'000'000; });
    CHECK(clock.core_time()->team_on_core_ns == 0);
    clock.adopt_team();
    std::atomic<bool> end{false};
    // A new thread has the name of the thread that starts it, as the threads of an OpenMP team have.
    std::thread member([&] { use_core([&] { return end.load(); }); });
    std::thread stranger([&] {
      name_this_thread("stranger");
      use_core([&] { return end.load(); });
    });
    const auto alone = clock.core_time()->team_on_core_ns;
    // It ends only if the member counts.
    while (clock.core_time()->team_on_core_ns < alone + 3'000'000) std::this_thread::yield();
    end = true;
    member.join();
    stranger.join();
    const auto last = clock.core_time()->team_on_core_ns;
    CHECK(last >= alone + 3'000'000);  // the time of a member that has ended is kept
    CHECK(clock.core_time()->team_on_core_ns == last);
  }).join();
}

TEST_CASE("the real machine: busy time grows, and this process is a part of it") {
  const SystemClock clock;
  const auto before = clock.machine_time();
  if (!before.busy_ns) {
    MESSAGE("skipped: this system has no /proc/stat");
    return;
  }
  use_core([&] { return clock.machine_time().busy_ns.value_or(0) >= *before.busy_ns + 50'000'000; });
  CHECK(clock.machine_time().busy_ns > before.busy_ns);
}

}  // namespace
}  // namespace millrace
