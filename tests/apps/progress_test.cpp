// The progress line over hand-made samples.
#include "apps/progress.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/json.hpp"

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

/// A run after `time_s` seconds, with `done` pictures finished, and a lane that was busy for 90 % of the time.
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
  CHECK(progress_line(before, now, 0) == "600/10000  50/s  3 min left  busiest: lane 90 % (detect)");
}

TEST_CASE("failures are counted, and a plan that still grows has no time left") {
  auto now = sample(20, 105, 10000);
  now.failed = 3;
  now.plan_complete = false;
  CHECK(progress_line(sample(10, 100, 9000), now, 0) == "105/10000+  0.50/s  3 failed  busiest: lane 90 % (detect)");
}

TEST_CASE("a window without time or pictures divides nothing by zero") {
  ProgressSample loading;
  loading.planned = 64;
  loading.plan_complete = true;
  CHECK(progress_line(loading, loading, 0) == "0/64  loading");
  CHECK(progress_line(loading, loading, 8) == "0/64  lo");
  const auto now = sample(10, 100, 200);
  CHECK(progress_line(now, now, 0) == "100/200  0.00/s");
  CHECK(progress_line(sample(0, 0, 200), sample(10, 0, 200), 0) == "0/200  0.00/s  busiest: lane 90 % (detect)");
}

TEST_CASE("a slow model is the busiest, even if few batches finish in 10 s") {
  for (const std::int64_t batches : {0, 1, 2, 7}) {
    CAPTURE(batches);
    const std::string line = progress_line(sample(10, 2, 14), sample(20, 2 + batches, 14), 0);
    CHECK(line.ends_with("  busiest: lane 90 % (detect)"));
  }
  CHECK(progress_line(sample(16.6, 3, 14), sample(26.6, 9, 14), 0) ==
        "9/14  0.60/s  8 s left  busiest: lane 90 % (detect)");
}

TEST_CASE("the line shows that the run waits for input, before the first picture and later") {
  ProgressSample silent;
  silent.ready = true;
  silent.snapshot.time_ns = 3 * second;
  CHECK(progress_line(silent, silent, 0) == "0/0+  waiting for input");
  const auto before = sample(10, 12, 12);
  auto now = sample(20, 12, 12);
  now.plan_complete = false;
  now.snapshot.input.busy_ns += 10 * second;
  CHECK(progress_line(before, now, 0) == "12/12+  0.00/s  waiting for input 100 %  busiest: lane 90 % (detect)");
  now.snapshot.resources = before.snapshot.resources;
  CHECK(progress_line(before, now, 0) == "12/12+  0.00/s  waiting for input 100 %");
}

TEST_CASE("plain lines come every 10 s of the samples' time, at any interval of samples") {
  for (const double every_s : {0.5, 0.502, 2.5, 10.0}) {
    CAPTURE(every_s);
    ProgressLines lines(ProgressStyle::plain);
    std::vector<std::string> written;
    for (int i = 0; i * every_s <= 61; ++i) {
      const double time_s = i * every_s;
      const auto done = static_cast<std::int64_t>(10 * time_s);
      const std::string text = lines.add(sample(100 + time_s, 1000 + done, 10000), 0);
      if (text.empty()) continue;
      written.push_back(text);
      CHECK(std::abs(time_s - 10.0 * static_cast<double>(written.size())) < 0.5);
    }
    CHECK(written.size() == 6);
    for (const auto& text : written) {
      CHECK(text.ends_with(" left  busiest: lane 90 % (detect)\n"));
      CHECK(text.find('\r') == std::string::npos);
    }
  }
}

TEST_CASE("a pause makes one plain line, not those that were missed") {
  ProgressLines lines(ProgressStyle::plain);
  CHECK(lines.add(sample(0, 0, 100), 0).empty());
  CHECK_FALSE(lines.add(sample(45, 10, 100), 0).empty());
  CHECK(lines.add(sample(45.5, 10, 100), 0).empty());
  CHECK_FALSE(lines.add(sample(50, 10, 100), 0).empty());
}

TEST_CASE("a terminal's line is drawn for every sample, cut to its columns") {
  ProgressLines lines(ProgressStyle::line);
  CHECK(lines.add(sample(0, 0, 100), 0) == "\r\033[K0/100  0.00/s");
  CHECK(lines.add(sample(0.5, 1, 100), 12) == "\r\033[K1/100  2.00/");
}

TEST_CASE("rate and utilisation cover the last 10 s, without the loading of models") {
  ProgressLines lines(ProgressStyle::line);
  ProgressSample loading;
  loading.planned = 1000;
  loading.plan_complete = true;
  for (int i = 0; i < 16; ++i) {
    loading.snapshot.time_ns = i * second / 2;
    CHECK(lines.add(loading, 0) == "\r\033[K0/1000  loading");
  }
  // The run begins at 7.5 s. 10 pictures finish in the first 5 s, then 1 a second.
  auto at = [](double time_s, std::int64_t done) {
    auto it = sample(time_s - 7.5, done, 1000);
    it.snapshot.time_ns = static_cast<std::int64_t>(time_s * second);
    return it;
  };
  CHECK(lines.add(at(12.5, 10), 0).starts_with("\r\033[K10/1000  2.00/s"));
  CHECK(lines.add(at(17.5, 15), 0).starts_with("\r\033[K15/1000  1.50/s"));
  CHECK(lines.add(at(22.5, 20), 0).starts_with("\r\033[K20/1000  1.00/s"));
}

TEST_CASE("time left has the unit that suits it") {
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

/// The sample with these windows. Pictures that have come to the windows are done or computed now.
ProgressSample with_windows(ProgressSample sample, WindowProgress windows) {
  sample.windows = windows;
  return sample;
}

TEST_CASE("progress and time left follow the windows of a picture that takes long") {
  // No picture of ten is finished. 12 windows a second; 4780 are left of this picture, and 9 x 4900 of the others.
  const auto before = with_windows(sample(10, 0, 10), {1, 0, 4900, 4900}),
             now = with_windows(sample(20, 0, 10), {1, 120, 4900, 4780});
  CHECK(progress_line(before, now, 0) ==
        "0/10  0.00/s  windows 120/4900  12/s  68 min left  busiest: lane 90 % (detect)");
  CHECK(*figures_of(before, now).left_s == doctest::Approx((4780 + 9 * 4900) / 12.0));
}

TEST_CASE("pictures to come have the mean number of windows of those that came, failed ones included") {
  // This attempt has finished two pictures with 300 windows in all, and one that failed before. Two are computed now.
  auto before = with_windows(sample(10, 3, 0), {5, 300, 700, 700}),
       now = with_windows(sample(20, 3, 0), {5, 400, 700, 600});
  now.planned = 15;
  CHECK(*figures_of(before, now).left_s == doctest::Approx((600 + 10 * (400 + 600) / 5.0) / 10));
  // An earlier attempt has finished four further ones.
  now.done += 4;
  CHECK(*figures_of(before, now).left_s == doctest::Approx((600 + 6 * (400 + 600) / 5.0) / 10));
  now.plan_complete = false;
  CHECK_FALSE(figures_of(before, now).left_s);
}

TEST_CASE("pictures that failed before they came to the windows are not to come") {
  // Ten pictures: five could not be read, four are finished, and the last one is computed now.
  auto before = with_windows(sample(10, 9, 0), {5, 400, 100, 100, 1}),
       now = with_windows(sample(20, 9, 0), {5, 450, 100, 50, 1});
  now.planned = 10;
  CHECK(*figures_of(before, now).left_s == doctest::Approx(50 / 5.0));
}

TEST_CASE("between two batches no window is in work, and the time left counts the pictures to come") {
  const auto before = with_windows(sample(10, 4, 10), {4, 400, 0, 0}),
             now = with_windows(sample(20, 5, 10), {5, 500, 0, 0});
  CHECK(progress_line(before, now, 0) == "5/10  0.10/s  50 s left  busiest: lane 90 % (detect)");
  // The results of the last picture are still written.
  const auto last = with_windows(sample(30, 9, 10), {10, 1000, 0, 0});
  CHECK(*figures_of(now, last).left_s == 0);
}

TEST_CASE("without progress in the window, nobody knows the time left; other recipes have no windows") {
  const auto now = with_windows(sample(20, 0, 10), {1, 120, 4900, 4780});
  CHECK_FALSE(figures_of(now, now).left_s);
  const nlohmann::json with = to_json(now, now), without = to_json(sample(10, 1, 10), sample(20, 2, 10));
  CHECK(with["windows_done"] == 120);
  CHECK(with["windows_in_work"] == 4900);
  CHECK(with["windows_per_s"] == 0);
  for (const char* key : {"windows_done", "windows_in_work", "windows_per_s"}) CHECK(without[key].is_null());
}

TEST_CASE("a line is no wider than the terminal") {
  const std::string whole = progress_line(sample(10, 100, 10000), sample(20, 600, 10000), 0);
  for (int columns : {1, 10, 30})
    CHECK(progress_line(sample(10, 100, 10000), sample(20, 600, 10000), columns) ==
          whole.substr(0, static_cast<std::size_t>(columns)));
}

}  // namespace
}  // namespace millrace
