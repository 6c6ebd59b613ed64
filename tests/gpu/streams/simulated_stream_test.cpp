#include "gpu/streams/simulated_stream.hpp"

#include <doctest/doctest.h>

#include <numeric>

#include "base/runs.hpp"
#include "gpu/device.hpp"
#include "gpu/ops/find_boxes.hpp"
#include "gpu/ops/letterbox.hpp"
#include "gpu/ops/outline.hpp"

namespace millrace {
namespace {

struct SimulatedDevice {
  std::shared_ptr<SimulatedGpu> gpu = std::make_shared<SimulatedGpu>(
      SimulatedRates{1e9, 5e8, {{"letterbox", 0.001}, {"find_boxes", 0.002}, {"outline", 0.003}}});
  SimulatedStream* stream = nullptr;
  std::unique_ptr<Device> device;

  SimulatedDevice() {
    auto own = std::make_unique<SimulatedStream>(gpu);
    stream = own.get();
    device = std::make_unique<Device>(std::move(own));
  }
};

MaskCall masks_of(Device& device, int masks, int width, int height, std::vector<std::shared_ptr<OutlinedMask>>& out) {
  MaskCall call{device.empty({masks, 16, 16}, DType::f32), device.empty({masks}, DType::f32), {}};
  const MaskGeometry geometry{16, 16, 64, 64, 64, 36, width, height};
  for (int n = 0; n < masks; ++n) {
    out.push_back(std::make_shared<OutlinedMask>());
    if (n % 2 == 0) call.targets.push_back({n, geometry, out.back()});
  }
  return call;
}

TEST_CASE("a simulated GPU counts the time of all its work, and computes nothing") {
  SimulatedDevice given;
  const auto work = std::make_shared<DeviceWork>();
  given.device->count_work(work);
  given.device->begin_stage("all");
  std::vector<std::uint8_t> pixels(64 * 36 * 3);
  const DeviceImage raster = given.device->upload({pixels.data(), 64, 36}, nullptr);
  InputSpec spec;
  spec.width = spec.height = 64;
  const Tensor input = given.device->empty({3, 64, 64}, DType::bf16);
  letterbox(*given.device, {letterbox_row(raster, letterbox_geometry(64, 36, spec), spec, input)});
  given.stream->compute(0.010);
  std::vector<std::shared_ptr<OutlinedMask>> masks;
  const MaskCall call = masks_of(*given.device, 5, 64, 36, masks);
  outline(*given.device, std::span(&call, 1), 0);
  given.device->wait();
  CHECK(given.gpu->busy_ns() == 1'000'000 + 10'000'000 + 5 * 3'000'000);
  CHECK(given.device->counts().uploads == 1);
  CHECK(given.device->counts().downloads == 1);
  CHECK(given.device->counts().waits == 1);
  // The device counts the same time, without the model call.
  REQUIRE(work->parts().size() == 1);
  const DeviceWork::Part part = work->parts().front();
  CHECK(part.stage == "all");
  CHECK(part.engines.at(DeviceWork::Engine::kernels).busy_ns + 10'000'000 == given.gpu->busy_ns());
  // Copies take 1 ns a byte to the device, and 2 ns a byte to the host.
  const std::int64_t picture_bytes = 64 * 36 * 3, masks_bytes = part.copied_bytes - picture_bytes;
  CHECK(masks_bytes > 0);
  for (const auto& [engine, ns] :
       {std::pair{DeviceWork::Engine::uploads, picture_bytes}, {DeviceWork::Engine::downloads, 2 * masks_bytes}}) {
    const DeviceWork::Sum sum = part.engines.at(engine);
    CHECK(sum.jobs == 1);
    CHECK(static_cast<double>(sum.busy_ns) == doctest::Approx(static_cast<double>(ns)).epsilon(0.001));
  }
}

TEST_CASE("simulated masks are ellipses with the size of their picture, also if they need a second wait") {
  for (const auto& [width, height, overflows] : {std::tuple{1920, 1080, 0}, {64, 36, 0}, {3, 2, 0}, {30000, 2000, 1}}) {
    CAPTURE(width);
    SimulatedDevice given;
    std::vector<std::shared_ptr<OutlinedMask>> masks;
    const MaskCall call = masks_of(*given.device, 3, width, height, masks);
    outline(*given.device, std::span(&call, 1), 0);
    given.device->wait();
    CHECK(given.device->counts().overflows == overflows);
    for (const int n : {0, 2}) {
      const OutlinedMask& mask = *masks[static_cast<std::size_t>(n)];
      CHECK(mask.fault.empty());
      CHECK(std::accumulate(mask.counts.begin(), mask.counts.end(), std::int64_t{0}) == std::int64_t{width} * height);
      CHECK(run_area(mask.counts) > 0);
      CHECK(mask.counts.size() == static_cast<std::size_t>(2 * std::max(1, width / 4) + 1));
    }
    CHECK(masks[1]->counts.empty());  // it has no target
  }
}

TEST_CASE("an operation without a time in the table ends the run, and the message has the key") {
  Device device(std::make_unique<SimulatedStream>(std::make_shared<SimulatedGpu>()));
  std::vector<std::shared_ptr<OutlinedMask>> masks;
  const MaskCall call = masks_of(device, 1, 8, 8, masks);
  CHECK_THROWS_WITH_AS(
      outline(device, std::span(&call, 1), 0),
      "the table of the simulated device has no time for the operation 'outline'; add the key 'outline_ms'",
      DeviceError);
}

TEST_CASE("work of several streams runs on the GPU one after another") {
  SimulatedGpu gpu;
  CHECK(gpu.work(100, 50) == 150);
  CHECK(gpu.work(120, 50) == 200);
  CHECK(gpu.work(1000, 5) == 1005);
  CHECK(gpu.busy_ns() == 105);
}

}  // namespace
}  // namespace millrace
