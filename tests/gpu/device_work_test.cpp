#include "gpu/device_work.hpp"

#include <doctest/doctest.h>

namespace millrace {
namespace {

using Engine = DeviceWork::Engine;

/// A job that was timed.
void run(DeviceWork& work, const DeviceWork::Job& job, double seconds) {
  if (work.ran(job)) work.took(job, seconds);
}

std::int64_t kernels_ns(const DeviceWork& work, std::size_t part) {
  return work.parts().at(part).engines.at(Engine::kernels).busy_ns;
}

TEST_CASE("an operation counts with the lower quartile of its times per unit") {
  DeviceWork work;
  // 2 ms a unit; three of four times were longer, because another lane used the GPU too.
  for (const double seconds : {0.009, 0.006, 0.004, 0.005}) run(work, {"segment", 0, "outline", 2}, seconds);
  CHECK(work.ran({"segment", 0, "outline", 3}));  // its time is not known yet
  const auto parts = work.parts();
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].stage == "segment");
  CHECK(parts[0].engines.size() == 1);
  CHECK(parts[0].engines.at(Engine::kernels).jobs == 5);
  CHECK(parts[0].engines.at(Engine::kernels).busy_ns == 27'500'000);  // 11 units of 2.5 ms
  CHECK(parts[0].copied_bytes == 0);
}

TEST_CASE("stages have times of their own; an operation without a time counts nothing") {
  DeviceWork work;
  run(work, {"preprocess", 0, "letterbox", 16}, 0.016);
  work.ran({"detect", 0, "letterbox", 16});
  run(work, {"detect", 1, "find_boxes", 1}, 0.002);
  CHECK_FALSE(work.ran({"detect", 2, "copy", 0}));  // nothing to do
  const auto parts = work.parts();
  REQUIRE(parts.size() == 2);
  CHECK(parts[0].stage == "detect");
  CHECK(parts[0].engines.at(Engine::kernels).busy_ns == 2'000'000);
  CHECK(parts[0].engines.at(Engine::kernels).jobs == 2);
  CHECK(parts[1].engines.at(Engine::kernels).busy_ns == 16'000'000);
}

TEST_CASE("copies count for the engine of their direction, and small ones say nothing about large ones") {
  DeviceWork work;
  const auto copy = [&](Engine engine, double bytes, double seconds) {
    run(work, {"segment", 0, "", bytes, engine}, seconds);
  };
  run(work, {"segment", 0, "outline", 4}, 0.004);
  // 1 byte/us, and three of four uploads waited for those of another lane.
  for (const double seconds : {0.003, 0.002, 0.001, 0.002}) copy(Engine::uploads, 1000, seconds);
  copy(Engine::uploads, 10, 30e-6);
  for (int i = 0; i < 100; ++i) work.ran({"segment", 0, "", 10, Engine::uploads});
  copy(Engine::downloads, 500, 0.001);
  const auto parts = work.parts();
  REQUIRE(parts.size() == 1);
  const auto& engines = parts[0].engines;
  CHECK(engines.at(Engine::kernels).busy_ns == 4'000'000);
  CHECK(engines.at(Engine::uploads).jobs == 105);
  CHECK(static_cast<double>(engines.at(Engine::uploads).busy_ns) == doctest::Approx(4 * 2e6 + 101 * 30e3));
  CHECK(engines.at(Engine::downloads).jobs == 1);
  CHECK(engines.at(Engine::downloads).busy_ns == 1'000'000);
  CHECK(parts[0].copied_bytes == 4 * 1000 + 101 * 10 + 500);
}

TEST_CASE("small jobs say nothing about large ones, nor one place about another") {
  DeviceWork work;
  // A few bytes take 3 us, as a launch does. A whole input takes 4 us.
  for (int i = 0; i < 31; ++i) run(work, {"detect", 0, "zero", 64}, 3e-6);
  run(work, {"detect", 0, "zero", 2.4e6}, 4e-6);
  CHECK(kernels_ns(work, 0) == doctest::Approx(31 * 3'000 + 4'000).epsilon(0.001));
  // The inputs of two models: the second has more pixels.
  for (int i = 0; i < 20; ++i) {
    run(work, {"preprocess", 0, "letterbox", 16}, 0.001);
    run(work, {"preprocess", 1, "letterbox", 16}, 0.003);
  }
  CHECK(kernels_ns(work, 1) == doctest::Approx(20 * 4'000'000).epsilon(0.001));
}

TEST_CASE("only the first operations are timed, and all are counted") {
  DeviceWork work;
  int timed = 0;
  for (int i = 0; i < 1000; ++i) {
    const DeviceWork::Job job{"encode", i % 40, "copy", 3};
    if (!work.ran(job)) continue;
    ++timed;
    work.took(job, 0.003);
  }
  CHECK(timed >= 16);
  CHECK(timed <= 17 * 32);
  CHECK(work.parts().front().engines.at(Engine::kernels).jobs == 1000);
  CHECK(kernels_ns(work, 0) == doctest::Approx(3e9));
}

TEST_CASE("busy time never falls, also if later times are shorter") {
  DeviceWork work;
  std::int64_t before = 0;
  for (const double seconds : {0.009, 0.002, 0.002, 0.002, 0.002, 0.002, 0.002, 0.002}) {
    run(work, {"segment", 0, "outline", 1}, seconds);
    CHECK(kernels_ns(work, 0) >= before);
    before = kernels_ns(work, 0);
  }
  CHECK(before == 16'000'000);
}

}  // namespace
}  // namespace millrace
