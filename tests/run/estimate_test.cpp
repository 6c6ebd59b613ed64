#include "run/estimate.hpp"

#include <doctest/doctest.h>

#include <random>

namespace millrace {
namespace {

Spread spread_of(std::initializer_list<double> values) {
  Spread spread;
  for (const double value : values) spread.add(value);
  return spread;
}

bool holds(const Figure& figure, double real) { return figure.low && *figure.low <= real && real <= *figure.high; }

TEST_CASE("quantiles of the t distribution are those of its tables") {
  CHECK_EQ(t_quantile(1), doctest::Approx(6.314).epsilon(0.001));
  CHECK_EQ(t_quantile(2), doctest::Approx(2.920).epsilon(0.001));
  CHECK_EQ(t_quantile(3), doctest::Approx(2.353).epsilon(0.01));
  CHECK_EQ(t_quantile(7), doctest::Approx(1.895).epsilon(0.001));
  CHECK_EQ(t_quantile(60), doctest::Approx(1.671).epsilon(0.001));
}

TEST_CASE("digits of all ids are counted exactly") {
  CHECK_EQ(digits_between(0, 0), 0);
  CHECK_EQ(digits_between(0, 10), 10);
  CHECK_EQ(digits_between(8, 12), 6);
  CHECK_EQ(digits_between(0, 1000), 10 + 180 + 2700);
}

TEST_CASE("a sum over the sample alone is exact, and one over more pictures is not") {
  const Spread sample = spread_of({10, 14, 12, 16});
  CHECK_EQ(sample.sum_over(4).low, 52);
  CHECK_EQ(sample.sum_over(4).high, 52);
  const Figure more = sample.sum_over(8);
  CHECK_EQ(more.value, 104);
  CHECK_LT(*more.low, 104);
  CHECK_GT(*more.high, 104);
  CHECK_GE(*more.low, 52);
  // One picture says nothing about the differences between pictures.
  CHECK_FALSE(spread_of({10}).sum_over(2).high);
  CHECK_FALSE(spread_of({10}).sum_over(2).low);
}

TEST_CASE("nine of ten sums over drawn pictures are in the interval") {
  std::mt19937_64 random(7);
  std::gamma_distribution<double> bytes(4, 100);
  constexpr int draws = 2000, sample = 40, all = 160;
  int held = 0, held_new = 0;
  for (int draw = 0; draw < draws; ++draw) {
    Spread spread;
    double sum = 0, sum_new = 0;
    for (int i = 0; i < all; ++i) {
      const double value = bytes(random);
      if (i < sample) spread.add(value);
      sum += value;
      sum_new += bytes(random);
    }
    held += holds(spread.sum_over(all), sum) ? 1 : 0;
    held_new += holds(spread.sum_of_new(all), sum_new) ? 1 : 0;
  }
  // 0.9 within four standard errors of the number of draws.
  CHECK_EQ(held / double{draws}, doctest::Approx(0.9).epsilon(0.03));
  CHECK_EQ(held_new / double{draws}, doctest::Approx(0.9).epsilon(0.03));
}

SampleTimes steady_sample() {
  SampleTimes times;
  times.pictures = 64;
  times.start_s = 2;
  times.fill_s = 1;
  times.drain_s = 3;
  times.window_s = 16;
  times.end_s = 0.5;
  times.outside = 16;
  times.steady_pictures_per_s = 4;
  times.block_s = spread_of({1.4, 1.6, 1.5, 1.5});
  times.block = 6;
  return times;
}

TEST_CASE("the time of a run is start, filling, pictures at the steady rate, draining and end") {
  const TimeEstimate time = estimate_time(steady_sample(), 1016);
  CHECK_EQ(time.wall_s.value, doctest::Approx(2 + 1 + 1000 / 4.0 + 3 + 0.5));
  CHECK_EQ(time.pictures_per_s.value, 4);
  CHECK(holds(time.wall_s, time.wall_s.value));
  CHECK(holds(time.pictures_per_s, 4));
  SUBCASE("pictures that differ more make the interval wider") {
    SampleTimes sample = steady_sample();
    sample.block_s = spread_of({1.0, 2.0, 1.5, 1.5});
    const TimeEstimate wider = estimate_time(sample, 1016);
    CHECK_LT(*wider.wall_s.low, *time.wall_s.low);
    CHECK_GT(*wider.wall_s.high, *time.wall_s.high);
  }
  SUBCASE("other programs may end, or take as much again") {
    SampleTimes sample = steady_sample();
    sample.gain_without_others = 0.5;
    const TimeEstimate wider = estimate_time(sample, 1016);
    CHECK_EQ(wider.wall_s.value, time.wall_s.value);
    CHECK_EQ(*wider.pictures_per_s.high, doctest::Approx(1.5 * *time.pictures_per_s.high));
    CHECK_EQ(*wider.pictures_per_s.low, doctest::Approx(*time.pictures_per_s.low / 1.5));
  }
  SUBCASE("work on the whole output at the end may grow with the pictures") {
    SampleTimes sample = steady_sample();
    sample.end_grows = true;
    CHECK_GT(*estimate_time(sample, 1016).wall_s.high, *time.wall_s.high + 5);
  }
  SUBCASE("without blocks, the interval is unknown") {
    SampleTimes sample = steady_sample();
    sample.block_s = {};
    CHECK_FALSE(estimate_time(sample, 1016).wall_s.high);
    CHECK_EQ(estimate_time(sample, 1016).wall_s.value, time.wall_s.value);
  }
}

TEST_CASE("without a steady rate, it is between the mean rate and that of the busiest threads") {
  SampleTimes sample = steady_sample();
  sample.steady_pictures_per_s.reset();
  sample.most_per_s = 9;
  const TimeEstimate time = estimate_time(sample, 6400);
  CHECK_EQ(time.pictures_per_s.value, doctest::Approx(6));  // of 4 and 9
  CHECK_LT(*time.pictures_per_s.low, 4);
  CHECK_GT(*time.pictures_per_s.high, 9);
}

SampleFiles decoded_sample() {
  SampleFiles files;
  files.pictures = 4;
  files.block_bytes = 4096;
  files.lines = spread_of({99, 99, 99, 99});
  files.plan_lines = spread_of({79, 79, 79, 79});
  files.error_lines = spread_of({0, 0, 0, 0});
  files.manifests = {1, 400};
  files.plan_heads = {1, 300};
  files.plan = {2, 2000};
  files.attempt = {2, 30'000};
  files.page_bytes = 200'000;
  files.header_bytes = 100;
  files.row_bytes = 120;
  files.folders = 5;
  return files;
}

TEST_CASE("files of segments and plan are counted exactly, with the digits of the ids") {
  const EstimateScope scope{.pictures = 5000, .segments = 3, .to_plan = 5000, .plan_segments = 3};
  const OutputEstimate output = estimate_output(decoded_sample(), scope, Figure::exactly(10));
  REQUIRE_EQ(output.parts.size(), 3);
  const OutputPart& segments = output.parts[0];
  CHECK_EQ(segments.name, "segments");
  CHECK_EQ(segments.files.low, 6);
  CHECK_EQ(segments.files.high, 6);
  CHECK_EQ(segments.bytes.low, 5000 * 99 + digits_between(0, 5000) + 3 * 400);
  CHECK_EQ(output.parts[1].name, "plan");
  CHECK_EQ(output.parts[1].files.high, 3 + 2);
  CHECK_GT(*output.disk_bytes.high, *output.bytes.high + *output.files.high * 4096);
  SUBCASE("a resumed run writes the rest and no plan") {
    const EstimateScope rest{.pictures = 1000, .done = 4000, .segments = 1};
    const OutputEstimate left = estimate_output(decoded_sample(), rest, Figure::exactly(10));
    REQUIRE_EQ(left.parts.size(), 2);
    CHECK_EQ(left.parts[0].bytes.low, 1000 * 99 + digits_between(4000, 5000) + 400);
  }
}

TEST_CASE("the timeline of the lanes grows up to its largest number of batches, and the page with it") {
  SampleFiles files = decoded_sample();
  const auto runs = [&](std::int64_t pictures) {
    const EstimateScope scope{.pictures = pictures, .segments = 1};
    return estimate_output(files, scope, Figure::exactly(1)).parts.at(1);
  };
  const OutputPart before = runs(8), long_before = runs(1'000'000);
  files.timeline_bytes = 1000;
  files.timeline_batches = 16;
  const OutputPart twice = runs(8), most = runs(1'000'000);
  CHECK_EQ(twice.files.value, before.files.value + 1);
  CHECK_EQ(twice.bytes.value, before.bytes.value + 2000 + 1000);
  CHECK_EQ(most.bytes.value, long_before.bytes.value + 128'000 + 127'000);
}

TEST_CASE("side files of each picture follow their number and their spread") {
  SampleFiles files = decoded_sample();
  PictureFiles overlays{.name = "overlay"};
  overlays.bytes = spread_of({1000, 3000, 2000, 0});
  overlays.disk_bytes = spread_of({4096, 4096, 4096, 0});
  overlays.files = spread_of({1, 1, 1, 0});
  overlays.folders = 3;
  overlays.lone = 1;
  files.sinks.push_back(overlays);
  const OutputEstimate output =
      estimate_output(files, {.pictures = 40, .segments = 1, .to_plan = 40, .plan_segments = 1}, Figure::exactly(1));
  const OutputPart& overlay = output.parts[2];
  CHECK_EQ(overlay.name, "overlay");
  CHECK_EQ(overlay.files.value, 30);
  CHECK_EQ(overlay.bytes.value, 60'000);
  CHECK_LT(*overlay.files.low, 30);
  CHECK_GT(*overlay.files.high, 30);
}

TEST_CASE("the peak of memory grows with its variation and with the number of pictures") {
  SampleMemory sample{.pictures = 64, .peak_bytes = 1e9, .early_peak_bytes = 9e8};
  CHECK_FALSE(estimate_memory(sample, 64).high);  // nothing was seen in the second half
  sample.resident_bytes = spread_of({9e8, 9.2e8, 9.4e8});
  const Figure same = estimate_memory(sample, 64), longer = estimate_memory(sample, 256);
  CHECK_EQ(same.value, 1e9);
  CHECK_GT(*same.high, 1e9);
  // Without a difference within the sample, equal runs still differ.
  SampleMemory steady{.pictures = 64, .peak_bytes = 1e9, .early_peak_bytes = 1e9};
  steady.resident_bytes = spread_of({1e9, 1e9, 1e9});
  CHECK_EQ(*estimate_memory(steady, 64).high, doctest::Approx(1.12e9));
  CHECK_EQ(*estimate_memory(steady, 64).low, doctest::Approx(0.88e9));
  // Two doublings, as from the early peak to that of the sample.
  CHECK_EQ(*longer.high - *same.high, doctest::Approx(1e8));
  CHECK_EQ(longer.value, doctest::Approx(1.05e9));
  CHECK_EQ(*longer.low, *same.low);
}

}  // namespace
}  // namespace millrace
