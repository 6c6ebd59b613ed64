// The progress line over hand-made samples.
#include "apps/progress.hpp"

#include <doctest/doctest.h>

namespace millrace {
namespace {

constexpr std::int64_t second = 1'000'000'000;

Reading reading(const std::string& name, int servers, std::int64_t items, double busy_s) {
  Reading it;
  it.name = name;
  it.servers = servers;
  it.items = items;
  it.busy_ns = static_cast<std::int64_t>(busy_s * second);
  return it;
}

/// A run after `time_s` seconds in which `done` pictures came out at a lane that was busy for 90 % of the time.
ProgressSample sample(double time_s, std::int64_t done, std::int64_t planned) {
  ProgressSample it;
  it.snapshot.time_ns = static_cast<std::int64_t>(time_s * second);
  it.snapshot.planned = done + 8;
  it.snapshot.committed = done;
  it.snapshot.input = reading("input", 1, done, 0);
  it.snapshot.without_credits = reading("gate", 1, done, 0);
  it.snapshot.resources = {{reading("read", 4, done, 0.1 * time_s), {}},
                           {reading("lane", 1, done, 0.9 * time_s),
                            {reading("detect", 1, done, 0.6 * time_s), reading("segment", 1, done, 0.3 * time_s)}},
                           {reading("commit", 1, done, 0.01 * time_s), {}}};
  it.snapshot.cores = 64;
  it.snapshot.admission_items = 16;
  it.done = done;
  it.planned = planned;
  it.plan_complete = true;
  return it;
}

TEST_CASE("done, rate, time left and the busiest stage over the window") {
  const auto before = sample(10, 100, 10000);
  const auto now = sample(20, 600, 10000);
  CHECK(progress_line(before, now, 0) == "600/10000  50/s  3 min left  busiest: detect 90 %");
}

TEST_CASE("failures are told, and a plan that still grows has no end") {
  auto now = sample(20, 105, 10000);
  now.failed = 3;
  now.plan_complete = false;
  CHECK(progress_line(sample(10, 100, 9000), now, 0) == "105/10000+  0.50/s  3 failed");
}

TEST_CASE("nothing is divided by nothing") {
  ProgressSample loading;
  loading.planned = 64;
  loading.plan_complete = true;
  CHECK(progress_line(loading, loading, 0) == "0/64  loading");
  const auto now = sample(10, 100, 200);
  CHECK(progress_line(now, now, 0) == "100/200  0.00/s");
  CHECK(progress_line(sample(0, 0, 200), sample(10, 0, 200), 0) == "0/200  0.00/s");
}

TEST_CASE("time left is told in the unit that suits it") {
  const auto left = [](std::int64_t items) {
    const std::string line = progress_line(sample(10, 100, 0), sample(20, 600, 600 + items), 0);
    const auto start = line.find("/s  ") + 4;
    return line.substr(start, line.find(" left") - start);
  };
  CHECK(left(0) == "0 s");
  CHECK(left(50 * 99) == "99 s");
  CHECK(left(50 * 600) == "10 min");
  CHECK(left(50 * 7200) == "2.0 h");
  CHECK(left(std::int64_t{50} * 86400 * 12) == "12 days");
}

TEST_CASE("a line is no wider than the terminal") {
  const std::string whole = progress_line(sample(10, 100, 10000), sample(20, 600, 10000), 0);
  for (int columns : {1, 10, 30})
    CHECK(progress_line(sample(10, 100, 10000), sample(20, 600, 10000), columns) ==
          whole.substr(0, static_cast<std::size_t>(columns)));
}

}  // namespace
}  // namespace millrace
