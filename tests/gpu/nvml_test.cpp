#include "gpu/nvml.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

namespace millrace {
namespace {

TEST_CASE("values that the driver reports about a GPU, and none where it reports none") {
  const char* library = std::getenv("MILLRACE_FAKE_NVML");
  REQUIRE(library != nullptr);
  for (int round = 0; round < 2; ++round) {  // the library can be closed and opened again
    const auto nvml = Nvml::open(library);
    REQUIRE(nvml != nullptr);
    const GpuSample sample = nvml->sample("fake:0");
    CHECK(sample.utilisation_percent == 87);
    CHECK(sample.memory_used_bytes == 600);
    CHECK(sample.memory_total_bytes == 1000);
    CHECK(sample.sm_mhz == 1980);
    CHECK(sample.memory_mhz == 3201);
    CHECK(!sample.power_w);
    CHECK(sample.temperature_c == 61);
    CHECK(sample.power_limited == true);
    CHECK(sample.heat_limited == false);
    CHECK(!nvml->sample("0000:3b:00.0").utilisation_percent);
  }
}

TEST_CASE("a library that does not exist, or is another") {
  CHECK(Nvml::open("/nowhere/libnvidia-ml.so.1") == nullptr);
  CHECK(Nvml::open("libm.so.6") == nullptr);
}

}  // namespace
}  // namespace millrace
