#include "models/demand.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "gpu/device.hpp"
#include "gpu/streams/host_stream.hpp"
#include "models/engines/fake_engine.hpp"
#include "models/engines/wrapped_engine.hpp"
#include "tests/models/engines/variant_like.hpp"
#include "tests/models/small_segmenter.hpp"

namespace millrace {
namespace {

constexpr double ms = 1e-3;

/// Milliseconds that a call of `rows` boxes counts for. Those of 16, 64 and 160 were measured.
double counted_ms(std::int64_t rows, bool padded) {
  const Package package = small_segmenter();
  const auto demand = std::make_shared<Demand>();
  demand->measured(package, "decode", 16, {4 * ms, 1 * ms});
  demand->measured(package, "decode", 64, {10 * ms, 1 * ms});
  demand->measured(package, "decode", 160, {20 * ms, 1 * ms});
  std::shared_ptr<Engine> engine =
      std::make_shared<FakeEngine>([](std::string_view, std::span<const Tensor>) { return std::vector<Tensor>{}; });
  if (padded) engine = std::make_shared<VariantLike>(std::move(engine), std::vector{16, 64, 160});
  const std::vector<Tensor> inputs{Tensor::empty({1, 1}), Tensor::empty({rows, 4}), Tensor::empty({rows}, DType::i64)};
  counted(engine, package, demand, nullptr)->call("decode", inputs);
  return static_cast<double>(demand->parts().at(0).busy_ns) * 1e-6;
}

TEST_CASE("a call that was not measured takes the time of the nearest measured rows, in proportion") {
  CHECK(counted_ms(64, false) == doctest::Approx(10));
  CHECK(counted_ms(20, false) == doctest::Approx(4 * 20 / 16.0));
  CHECK(counted_ms(128, false) == doctest::Approx(20 * 128 / 160.0));
  CHECK(counted_ms(320, false) == doctest::Approx(40));
}

TEST_CASE("a call of a variant takes the time of the rows that its libraries compute") {
  CHECK(counted_ms(64, true) == doctest::Approx(10));
  CHECK(counted_ms(1, true) == doctest::Approx(4));
  CHECK(counted_ms(17, true) == doctest::Approx(10));
  CHECK(counted_ms(70, true) == doctest::Approx(20));
  CHECK(counted_ms(161, true) == doctest::Approx(20 * 176 / 160.0));  // a call for 160, and one for 16
  CHECK(counted_ms(320, true) == doctest::Approx(40));
}

TEST_CASE("calls of a method that was never measured do not count") {
  const Package package = small_segmenter();
  Demand demand;
  CHECK_FALSE(demand.count(package, package.method("encode"), 4));
  CHECK(demand.parts().empty());
}

/// A GPU in the time of the test: it runs what the host has launched, in order, while the host launches more.
class GpuInTestTime final : public Stream {
 public:
  std::int64_t now_ns = 0;  ///< of the host

  void launch(double launch_s, double kernel_s) {
    now_ns += ns(launch_s);
    run(kernel_s);
  }

  [[nodiscard]] int device() const override { return 0; }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return host_.allocate(bytes); }
  std::shared_ptr<void> allocate_mapped(std::size_t bytes) override { return host_.allocate_mapped(bytes); }
  void upload(const void* /*host*/, void* /*device*/, std::size_t /*bytes*/) override {}
  void download(const void* /*device*/, void* /*host*/, std::size_t /*bytes*/) override {}
  void copy(const void* /*from*/, void* /*to*/, std::size_t /*bytes*/) override {}
  void zero(void* /*device*/, std::size_t /*bytes*/) override {}
  void store(const void* /*host*/, void* /*device*/, std::size_t /*bytes*/) override {}
  void wait() override { now_ns = std::max(now_ns, done_ns_); }
  std::shared_ptr<const void> mark() override {
    return std::make_shared<const std::int64_t>(std::max(now_ns, done_ns_));
  }
  [[nodiscard]] double seconds(const void* from, const void* to) const override {
    const auto at_ns = [](const void* mark) { return *static_cast<const std::int64_t*>(mark); };
    return static_cast<double>(at_ns(to) - at_ns(from)) / 1e9;
  }

 protected:
  void take(std::shared_ptr<const OperationCall> /*call*/) override {}
  void idle(double seconds) override { run(seconds); }

 private:
  static std::int64_t ns(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }
  void run(double seconds) { done_ns_ = std::max(now_ns, done_ns_) + ns(seconds); }

  HostStream host_;
  std::int64_t done_ns_ = 0;  // the end of all work so far
};

/// A model of ten kernels.
class TenKernels final : public WrappedEngine {
 public:
  TenKernels(const Package& package, GpuInTestTime& gpu, double launch_s, double kernel_s)
      : WrappedEngine(std::make_shared<FakeEngine>(FakeEngine::zeros_of(package))),
        gpu_(gpu),
        launch_s_(launch_s),
        kernel_s_(kernel_s) {}
  using Engine::call;
  std::vector<Tensor> call(std::string_view /*method*/, std::span<const Tensor> /*inputs*/,
                           Device& /*device*/) override {
    for (int i = 0; i < 10; ++i) gpu_.launch(launch_s_, kernel_s_);
    return {};
  }

 private:
  GpuInTestTime& gpu_;
  const double launch_s_, kernel_s_;
};

TEST_CASE("a call counts with the time of its kernels, without the idle time before them and gaps between launches") {
  const Package package = small_segmenter();
  // Launches take longer than the kernels, as long, or hardly any time.
  for (const double launch_s : {0.4 * ms, 0.1 * ms, 0.001 * ms}) {
    CAPTURE(launch_s);
    auto own = std::make_unique<GpuInTestTime>();
    GpuInTestTime& gpu = *own;
    Device device(std::move(own));
    TenKernels engine(package, gpu, launch_s, 0.1 * ms);
    const auto demand = std::make_shared<Demand>();
    measure_alone(engine, package, {{"encode", 1}, {"decode", 16}}, 5, device, *demand, [&] { return gpu.now_ns; });
    demand->count(package, package.method("encode"), 1);
    demand->count(package, package.method("decode"), 16);
    REQUIRE(demand->parts().size() == 2);
    for (const Demand::Part& part : demand->parts()) {
      CHECK(part.busy_ns == 1'000'000);
      CHECK(static_cast<double>(part.launch_ns) == doctest::Approx(10 * launch_s * 1e9));
    }
  }
}

}  // namespace
}  // namespace millrace
