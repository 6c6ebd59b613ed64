#include "gpu/device_work.hpp"

#include <doctest/doctest.h>

namespace millrace {
namespace {

TEST_CASE("an operation counts with the lower quartile of its times per unit") {
  DeviceWork work;
  // 2 ms a unit; three of four times were longer, because another lane used the GPU too.
  for (const double seconds : {0.009, 0.006, 0.004, 0.005}) {
    CHECK(work.ran("segment", "outline", 2));
    work.took("segment", "outline", 2, seconds);
  }
  CHECK(work.ran("segment", "outline", 4));  // its time is not known yet
  const auto parts = work.parts();
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].stage == "segment");
  CHECK(parts[0].operations == 5);
  CHECK(parts[0].busy_ns == 30'000'000);  // 12 units of 2.5 ms
  CHECK(parts[0].copied_bytes == 0);
}

TEST_CASE("stages and operations have times of their own; one without a time counts nothing") {
  DeviceWork work;
  work.ran("preprocess", "letterbox", 16);
  work.took("preprocess", "letterbox", 16, 0.016);
  work.ran("detect", "letterbox", 16);
  work.ran("detect", "find_boxes", 1);
  work.took("detect", "find_boxes", 1, 0.002);
  work.copied("detect", 10);
  work.copied("detect", 5);
  CHECK_FALSE(work.ran("detect", "copy", 0));  // nothing to do
  const auto parts = work.parts();
  REQUIRE(parts.size() == 2);
  CHECK(parts[0].stage == "detect");
  CHECK(parts[0].busy_ns == 2'000'000);
  CHECK(parts[0].operations == 2);
  CHECK(parts[0].copied_bytes == 15);
  CHECK(parts[1].busy_ns == 16'000'000);
}

TEST_CASE("only the first operations are timed, and all are counted") {
  DeviceWork work;
  int timed = 0;
  for (int i = 0; i < 1000; ++i) {
    if (!work.ran("encode", "copy", 3)) continue;
    ++timed;
    work.took("encode", "copy", 3, 0.003);
  }
  CHECK(timed >= 16);
  CHECK(timed <= 64);
  CHECK(work.parts().front().operations == 1000);
  CHECK(work.parts().front().busy_ns == 3'000'000'000);
}

}  // namespace
}  // namespace millrace
