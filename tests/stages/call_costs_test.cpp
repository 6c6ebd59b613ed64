#include "stages/call_costs.hpp"

#include <doctest/doctest.h>

#include <thread>
#include <vector>

using namespace millrace;

namespace {

/// Calls with these numbers of rows: 20 ms each, and 10 ms a row. Every third one is disturbed.
CallCosts::ByRows calls_with(const std::vector<int>& numbers) {
  CallCosts times;
  for (const int rows : numbers) {
    for (int i = 0; i < 30; ++i) times.took("segment", "decode", rows, 0.02 + 0.01 * rows + (i % 3 == 0 ? 0.5 : 0));
  }
  return times.of("segment", "decode");
}

}  // namespace

TEST_CASE("the fixed part of a call follows from calls with different numbers of rows") {
  CHECK(fixed_seconds(calls_with({4, 10, 64})).value() == doctest::Approx(0.02));
  CHECK(fixed_seconds(calls_with({4, 6})).value() == doctest::Approx(0.02));
  CHECK_FALSE(fixed_seconds(calls_with({10, 11, 14})));
  CHECK_FALSE(fixed_seconds(calls_with({10})));
  CHECK_FALSE(fixed_seconds({}));
}

TEST_CASE("a negative fixed part is noise") {
  CallCosts times;
  times.took("segment", "decode", 1, 0.01);
  times.took("segment", "decode", 10, 0.2);
  CHECK(fixed_seconds(times.of("segment", "decode")).value() == 0);
}

TEST_CASE("all calls count, and the newest times are kept") {
  CallCosts times;
  for (int i = 0; i < 1000; ++i) times.took("segment", "decode", 8, i < 900 ? 1 : 2);
  const auto calls = times.of("segment", "decode");
  CHECK(calls.at(8).calls == 1000);
  CHECK(calls.at(8).seconds == std::vector<double>(32, 2.0));
  CHECK(times.of("segment", "encode").empty());
  CHECK(times.of("detect", "decode").empty());
}

TEST_CASE("lanes add calls at the same time") {
  CallCosts times;
  {
    std::vector<std::jthread> lanes;
    for (int lane = 0; lane < 4; ++lane)
      lanes.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) times.took("segment", "decode", 1 + i % 4, 0.01);
      });
  }
  const auto calls = times.of("segment", "decode");
  for (int rows = 1; rows <= 4; ++rows) CHECK(calls.at(rows).calls == 1000);
}

TEST_CASE("a thread's seconds are those for which it computed") {
  const double begun_s = thread_seconds();
  double end_s = begun_s;
  while (end_s < begun_s + 0.001) end_s = thread_seconds();  // only computing ends this loop
  CHECK(end_s > begun_s);
}
