#include "run/devices.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "stages/options.hpp"
#include "tests/io/files/temporary_folder.hpp"

namespace millrace {
namespace {

TEST_CASE("the GPUs that NVIDIA's driver lists") {
  const TemporaryFolder folder;
  CHECK(gpus_of_driver(folder.path()).empty());
  CHECK(gpus_of_driver("/nowhere").empty());
  std::filesystem::create_directories(folder.path() + "/0000:3b:00.0");
  std::ofstream(folder.path() + "/0000:3b:00.0/information") << "Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\n";
  CHECK(gpus_of_driver(folder.path()) == std::vector<std::string>{"NVIDIA H200"});
}

/// A detector and a segmenter.
const Packages both = [] {
  Packages packages;
  for (const char* task : {"detect", "segment"}) {
    Package package;
    package.task = &find_task(task);
    packages[task] = std::make_shared<const Package>(package);
  }
  return packages;
}();

TEST_CASE("device.precision: the precision of detectors and segmenters") {
  Devices cpu, old_gpu, gpu;
  old_gpu.kind = gpu.kind = Devices::Kind::cuda;
  old_gpu.name = "cuda sm_75";
  old_gpu.native_bf16 = false;
  CHECK(find_precisions("auto", cpu).name(both) == "fp32");
  CHECK(find_precisions("auto", gpu).name(both) == "detect fp16, segment bf16");
  CHECK(find_precisions("auto", old_gpu).name(both) == "fp16");
  CHECK(find_precisions("tf32", gpu).name(both) == "tf32");
  CHECK(find_precisions("auto", gpu).of(find_task("segment")) == Precision::bf16);
  CHECK(find_precisions("auto", gpu).of(find_task("detect")) == Precision::fp16);
  for (const char* name : {"bf16", "tf32"}) CHECK_THROWS_AS(find_precisions(name, old_gpu), UsageError);
  for (const char* name : {"tf32", "fp16"}) CHECK_THROWS_AS(find_precisions(name, cpu), UsageError);
  CHECK(find_precisions("bf16", cpu).name(both) == "bf16");
  CHECK(find_precisions("segment=bf16", cpu).name(both) == "detect fp32, segment bf16");
  CHECK(find_precisions("detect=fp32", gpu).name(both) == "detect fp32, segment bf16");
  CHECK(find_precisions("detect=fp16,segment=fp16", gpu).name(both) == "fp16");
  CHECK(find_precisions("segment=bf16", cpu).has(Precision::bf16));
  CHECK(!find_precisions("auto", cpu).has(Precision::bf16));
  for (const char* name : {"fp8", "", "segment=", "segment=fp8", "track=fp32", "=bf16", "segment=bf16,,",
                           "fp32,segment=bf16", "segment=tf32", "segment=bf16,detect"}) {
    CAPTURE(name);
    CHECK_THROWS_AS(find_precisions(name, gpu), UsageError);
  }
}

TEST_CASE("lanes take turns on the devices") {
  const Devices two = find_devices("fake:2");
  CHECK(two.count() == 2);
  for (int lane = 0; lane < 5; ++lane) CHECK(two.of_lane(lane) == static_cast<std::size_t>(lane % 2));
}

TEST_CASE("fake devices take rasters from their pixel memory and from no other") {
  const Devices two = find_devices("fake:2");
  const auto raster = pixel_memory(two)(12);
  std::vector<std::uint8_t> plain(12);
  for (const std::size_t index : {0U, 1U}) {
    const auto device = make_device(two, index, "lane 0");
    CHECK_NOTHROW(device->upload({static_cast<const std::uint8_t*>(raster.get()), 2, 2}, raster));
    CHECK_THROWS_AS(device->upload({plain.data(), 2, 2}, nullptr), std::logic_error);
    CHECK_NOTHROW(device->wait());
  }
  CHECK(!pixel_memory(find_devices("cpu")));
}

}  // namespace
}  // namespace millrace
