#include "apps/memory_plan.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gpu/fake_stream.hpp"
#include "gpu/stream_device.hpp"
#include "stages/options.hpp"

namespace millrace {
namespace {

constexpr std::int64_t kilo = 1000;

/// Needs `each` bytes of the device for a row of a call, beside inputs and outputs.
class HungryEngine final : public Engine {
 public:
  HungryEngine(Package package, std::int64_t each) : package_(std::move(package)), each_(each) {}
  using Engine::call;
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device& device) override {
    const auto rows = rows_of_call(method, inputs);
    const Tensor scratch = device.empty({rows * each_}, DType::u8);
    std::vector<Tensor> outputs;
    for (const auto& spec : outputs_of(package_, method, inputs[0].shape[0], rows))
      outputs.push_back(device.empty(spec.shape, spec.dtype));
    return outputs;
  }
  std::int64_t memory_bytes() const override { return 0; }

 private:
  const Package package_;
  const std::int64_t each_;
};

/// A segmenter whose tensors are next to nothing, on a device with so much memory.
struct Bench {
  std::int64_t each = 100 * kilo;
  std::shared_ptr<Package> segmenter = [] {
    auto package = std::make_shared<Package>();
    package->name = "sam";
    package->fingerprint = "abc";
    package->folder = "sam.pkg";
    package->task = Task::segment;
    package->input.width = package->input.height = 4;
    package->embedding = {1, 1, 1};
    package->logits = {1, 1};
    package->max_batch = 64;
    package->max_boxes = 64;
    return package;
  }();
  Packages packages{{"sam.pkg", segmenter}};
  Settings settings{};
  CallLimits limits{};
  KnownLimits known{""};

  std::optional<MemoryPlan> plan(std::int64_t bytes, int wanted = 3) {
    settings.set("segment.image_batch=16");
    settings.set("segment.box_batch=8");
    settings.set("segment.pad=yes");
    StreamDevice device(std::make_unique<FakeStream>(0, std::make_shared<FakeMemory>(bytes)));
    const std::shared_ptr<CallLimits> shared(&limits, [](CallLimits*) {});
    ModelCache models(1000, [&](const Package& package, const EngineOptions&) {
      return limited(std::make_shared<HungryEngine>(package, each), package.name, shared);
    });
    return plan_memory(device, settings, 16, 10 * kilo, wanted, packages, models, "fake", known, limits);
  }
};

TEST_CASE("as many lanes as fit, with what was measured") {
  struct Row {
    std::int64_t bytes;
    int lanes;
  };
  // 16 rows of 100 kB and 16 slabs of 10 kB: 1.76 MB and a little a lane, of 0.9 of the memory.
  for (const Row& row : {Row{10'000 * kilo, 3}, Row{5'000 * kilo, 2}, Row{3'500 * kilo, 1}, Row{2'100 * kilo, 1}}) {
    CAPTURE(row.bytes);
    Bench bench;
    const auto plan = bench.plan(row.bytes);
    REQUIRE(plan);
    CHECK(plan->lanes == row.lanes);
    CHECK(plan->wanted_lanes == 3);
    CHECK(plan->free_bytes == row.bytes);
    CHECK(plan->limit_bytes == row.bytes * 9 / 10);
    CHECK(plan->models_bytes == 0);
    CHECK(plan->calls_bytes >= 1'600 * kilo);
    CHECK(plan->calls_bytes < 1'610 * kilo);
    CHECK(plan->pictures_bytes >= 160 * kilo);
    CHECK(plan->smaller_calls.empty());
    CHECK(plan->bytes() <= plan->limit_bytes);
  }
}

TEST_CASE("calls that do not fit become smaller, whether memory ran out or was not to be used") {
  const std::map<CallLimits::Key, int> fit{{{"sam", "encode"}, 4}, {{"sam", "decode"}, 2}};
  Bench little;
  const auto plan = little.plan(800 * kilo);  // 400 kB of calls and 160 kB of slabs
  REQUIRE(plan);
  CHECK(plan->lanes == 1);
  CHECK(plan->smaller_calls.at({"sam", "encode"}) == 4);
  CHECK(plan->bytes() <= plan->limit_bytes);
  CHECK(plan->text().find("sam: encode takes 4 pictures a call") != std::string::npos);

  Bench told;
  told.settings.set("device.memory=700k");
  const auto other = told.plan(100'000 * kilo);
  REQUIRE(other);
  CHECK(other->limit_bytes == 700 * 1024);
  CHECK(other->smaller_calls == fit);
  CHECK(other->lanes == 1);
}

TEST_CASE("not even a picture fits") {
  Bench bench;
  bench.each = 10'000 * kilo;
  CHECK_THROWS_AS(bench.plan(1'000 * kilo), OutOfMemoryError);
}

TEST_CASE("what a lane may hold at most is more than there is: the plan says so") {
  Bench bench;
  const auto plan = bench.plan(250 * kilo);
  REQUIRE(plan);
  CHECK(plan->lanes == 1);
  CHECK(plan->text().find("lower batch.size or gate.slab") != std::string::npos);
}

TEST_CASE("shares and bytes") {
  const DeviceMemory memory{1000, 2000};
  CHECK(memory_limit("0.9", memory) == 900);
  CHECK(memory_limit("1", memory) == 1000);
  CHECK(memory_limit("500", memory) == 500);
  CHECK(memory_limit("1k", memory) == 1000);
  for (const char* wrong : {"", "0", "-1", "lots", "0.9x", "90%"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(memory_limit(wrong, memory), UsageError);
  }
}

TEST_CASE("what runs learned is known to later ones with no more memory") {
  const auto folder = std::filesystem::temp_directory_path() / ("millrace-limits-" + std::to_string(::getpid()));
  const std::string file = folder / "state/limits.json";
  const KnownLimits known(file);
  const Bench bench;
  const auto recalled = [&](const std::string& device, std::int64_t bytes) {
    CallLimits limits;
    known.recall(device, bytes, bench.packages, limits);
    return limits.most("sam", "encode");
  };
  CHECK(recalled("a GPU", 1000) == CallLimits::none);  // no file
  CallLimits learned;
  learned.at_most("sam", "encode", 4);
  learned.at_most("elsewhere", "encode", 1);
  known.remember("a GPU", 1000, bench.packages, learned);
  CHECK(recalled("a GPU", 1000) == 4);
  CHECK(recalled("a GPU", 900) == 4);
  CHECK(recalled("a GPU", 1040) == 4);
  CHECK(recalled("a GPU", 1100) == CallLimits::none);
  CHECK(recalled("another GPU", 1000) == CallLimits::none);
  learned.at_most("sam", "encode", 2);
  known.remember("another GPU", 1000, bench.packages, learned);
  known.remember("a GPU", 500, bench.packages, learned);
  CHECK(recalled("another GPU", 1000) == 2);
  CHECK(recalled("a GPU", 1000) == CallLimits::none);  // what was known before is replaced
  CHECK(recalled("a GPU", 500) == 2);
  std::ofstream(file) << "[{";
  CHECK(recalled("a GPU", 500) == CallLimits::none);
  known.remember("a GPU", 500, bench.packages, learned);
  CHECK(recalled("a GPU", 500) == 2);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace millrace
