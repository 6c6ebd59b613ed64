#include "run/memory_plan.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/streams/fake_stream.hpp"
#include "models/engines/wrapped_engine.hpp"
#include "run/config.hpp"
#include "run/settings.hpp"

namespace millrace {
namespace {

constexpr std::int64_t kilo = 1000;

/// Needs `each` bytes of the device for a row of a call, in addition to inputs and outputs. Holds `weights` as long as it
/// lives.
class HungryEngine final : public Engine {
 public:
  HungryEngine(Package package, std::int64_t each, std::shared_ptr<void> weights,
               std::function<void(std::string_view method)> called)
      : package_(std::move(package)), each_(each), weights_(std::move(weights)), called_(std::move(called)) {}
  using Engine::call;
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device& device) override {
    called_(method);
    const auto rows = rows_of_call(package_, method, inputs);
    try {
      const Tensor scratch = device.empty({rows * each_}, DType::u8);
      std::vector<Tensor> outputs;
      for (const auto& spec : outputs_of(package_, method, package_.method(method).call_of(inputs)))
        outputs.push_back(device.empty(spec.shape, spec.dtype));
      return outputs;
    } catch (const std::bad_alloc&) {
      throw OutOfMemoryError("hungry");  // the LibTorch engine throws the same
    }
  }
  std::int64_t memory_bytes() const override { return 0; }

 private:
  const Package package_;
  const std::int64_t each_;
  const std::shared_ptr<void> weights_;
  const std::function<void(std::string_view method)> called_;
};

/// Takes the memory of its calls as LibTorch does. It keeps the memory of each method for later calls of this method.
/// It frees all of it only when memory runs short.
class HoardingEngine final : public Engine {
 public:
  HoardingEngine(Package package, std::int64_t each, std::shared_ptr<void> weights, std::shared_ptr<FakeMemory> memory)
      : package_(std::move(package)), each_(each), weights_(std::move(weights)), memory_(std::move(memory)) {}
  using Engine::call;
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device& device) override {
    const std::int64_t bytes = rows_of_call(package_, method, inputs) * each_;
    try {
      take(std::string(method), bytes);
      std::vector<Tensor> outputs;
      for (const auto& spec : outputs_of(package_, method, package_.method(method).call_of(inputs)))
        outputs.push_back(device.empty(spec.shape, spec.dtype));
      return outputs;
    } catch (const std::bad_alloc&) {
      throw OutOfMemoryError("hoarding");
    }
  }
  std::int64_t memory_bytes() const override { return 0; }
  void trim() override {
    hoards_.clear();
    peak_ = 0;
  }
  TorchMemory torch_memory() const override {
    std::int64_t kept = 0;
    for (const auto& [method, hoard] : hoards_) kept += hoard.bytes;
    return {kept, peak_};
  }

 private:
  struct Hoard {
    std::unique_ptr<FakeStream> stream;
    std::int64_t bytes = 0;
  };

  void take(const std::string& method, std::int64_t bytes) {
    for (const bool again : {false, true}) {
      Hoard& hoard = hoards_[method];
      if (hoard.stream == nullptr) hoard.stream = std::make_unique<FakeStream>(0, memory_);
      try {
        static_cast<void>(hoard.stream->allocate(static_cast<std::size_t>(bytes)));
        hoard.bytes = std::max(hoard.bytes, bytes);
        peak_ = std::max(peak_, bytes);
        return;
      } catch (const std::bad_alloc&) {
        hoards_.clear();
        if (again) throw;
      }
    }
  }

  const Package package_;
  const std::int64_t each_;
  const std::shared_ptr<void> weights_;
  const std::shared_ptr<FakeMemory> memory_;
  std::map<std::string, Hoard> hoards_;
  std::int64_t peak_ = 0;
};

/// A segmenter with tiny tensors, whose memory plan is made for a device of a given size.
struct Bench {
  std::int64_t each = 100 * kilo, weights = 50 * kilo, slab = 10 * kilo;
  std::shared_ptr<Package> segmenter = [] {
    auto package = std::make_shared<Package>();
    package->name = "sam";
    package->fingerprint = "abc";
    package->folder = "sam.pkg";
    package->task = &find_task("segment");
    package->input.width = package->input.height = 4;
    package->output = {{"embedding", {1, 1, 1}}, {"logits", {1, 1}}, {"max_boxes", {64}}};
    package->max_batch = 64;
    set_methods(*package);
    return package;
  }();
  Packages packages{{"sam.pkg", segmenter}};
  Settings settings{};
  CallLimits limits{};
  std::string known_file{};
  bool hoards = false;  // the engine is a HoardingEngine
  GraphUse* graphs = nullptr;
  std::vector<std::string> calls_as_graphs{};  // methods

  std::optional<MemoryPlan> plan(std::int64_t bytes, int wanted = 3, int sharing = 1) {
    settings.set("segment.image_batch=16");
    settings.set("segment.box_batch=8");
    settings.set("segment.pad=yes");
    settings.set("segment.model=sam.pkg");
    const Config config = parse_config(settings);
    const auto models = planned_models({{"default", &config.chain}}, packages);
    const auto of_device = std::make_shared<FakeMemory>(bytes);
    auto stream = std::make_unique<FakeStream>(0, of_device);
    FakeStream& memory = *stream;
    Device device(std::move(stream));
    const std::shared_ptr<CallLimits> shared(&limits, [](CallLimits*) {});
    ModelCache cache(1000, [&](const Package& package, const EngineOptions&) {
      // Loading needs the same memory once more, and then frees it.
      const auto passing = memory.allocate(static_cast<std::size_t>(weights));
      auto kept = memory.allocate(static_cast<std::size_t>(weights));
      if (hoards)
        return limited(std::make_shared<HoardingEngine>(package, each, std::move(kept), of_device), package, shared);
      const auto called = [&](std::string_view method) {
        if (graphs != nullptr && !graphs->paused) calls_as_graphs.emplace_back(method);
      };
      return limited(std::make_shared<HungryEngine>(package, each, std::move(kept), called), package, shared);
    });
    const KnownLimits known(known_file);
    return plan_memory({models, config.chain.objects(), packages, config.device.memory, 16, slab, wanted, sharing,
                        "a GPU", known, graphs},
                       device, cache, limits);
  }
};

TEST_CASE("CUDA graphs are made for the planned sizes only") {
  for (const std::int64_t bytes : {10'000 * kilo, 1'000 * kilo}) {  // enough, and too little for the largest calls
    CAPTURE(bytes);
    Bench bench;
    GraphUse graphs;
    bench.graphs = &graphs;
    const auto plan = bench.plan(bytes);
    REQUIRE(plan);
    CHECK(plan->smaller_calls.empty() == (bytes > 1'000 * kilo));
    CHECK_FALSE(graphs.paused);
    CHECK(bench.calls_as_graphs == std::vector<std::string>{"encode", "decode"});
  }
}

TEST_CASE("the plan has the lanes that fit, and the measured sizes") {
  struct Row {
    std::int64_t bytes;
    int lanes;
  };
  // A lane needs 16 rows of 100 kB and 16 slabs of 10 kB: a little over 1.76 MB. Lanes share 0.9 of the memory.
  for (const Row& row : {Row{10'000 * kilo, 3}, Row{5'000 * kilo, 2}, Row{3'500 * kilo, 1}, Row{2'100 * kilo, 1}}) {
    CAPTURE(row.bytes);
    Bench bench;
    const auto plan = bench.plan(row.bytes);
    REQUIRE(plan);
    CHECK(plan->lanes == row.lanes);
    CHECK(plan->wanted_lanes == 3);
    CHECK(plan->free_bytes == row.bytes);
    CHECK(plan->limit_bytes == row.bytes * 9 / 10);
    CHECK(plan->models_bytes == 50 * kilo);
    CHECK(plan->calls_bytes >= 1'600 * kilo);
    CHECK(plan->calls_bytes < 1'610 * kilo);
    CHECK(plan->pictures_bytes >= 160 * kilo);
    CHECK(plan->pictures_bytes < 165 * kilo + 2 * 16 * 100 * 4);  // logits and IoU of 100 boxes a picture
    CHECK(plan->smaller_calls.empty());
    REQUIRE(plan->stage_bytes.size() == 1);
    CHECK(plan->stage_bytes.at("segment") == plan->calls_bytes);  // no other stage calls a model
    CHECK(plan->bytes() <= plan->limit_bytes);
  }
}

TEST_CASE("devices that share a GPU plan with their share of its memory") {
  Bench bench;
  const auto plan = bench.plan(10'000 * kilo, 3, 2);
  REQUIRE(plan);
  CHECK(plan->limit_bytes == 4'500 * kilo);
  CHECK(plan->lanes == 2);
}

TEST_CASE("only calls that run out of memory become smaller") {
  Bench bench;
  const auto plan = bench.plan(1'200 * kilo);  // 800 kB of calls and 160 kB of slabs
  REQUIRE(plan);
  CHECK(plan->lanes == 1);
  CHECK(plan->smaller_calls == std::map<CallLimits::Key, int>{{{"sam abc", "encode"}, 8}});
  CHECK(bench.limits.learned() == plan->smaller_calls);
  CHECK(plan->calls_bytes >= 800 * kilo);
  CHECK(plan->calls_bytes < 810 * kilo);
  CHECK(plan->bytes() <= plan->limit_bytes);
  CHECK(plan->text().find("sam: encode takes 8 pictures a call") != std::string::npos);
}

TEST_CASE("calls above the limit of the user become smaller, those that need most first; no limit is learned") {
  Bench bench;
  bench.each = 200 * kilo;
  bench.settings.set("device.memory=1400k");  // 800 kB of calls, 160 kB of slabs, 50 kB of models; not 1,600 kB
  const auto plan = bench.plan(100'000 * kilo);
  REQUIRE(plan);
  CHECK(plan->limit_bytes == 1400 * 1024);
  CHECK(plan->smaller_calls == std::map<CallLimits::Key, int>{{{"sam abc", "encode"}, 4}, {{"sam abc", "decode"}, 4}});
  CHECK(plan->lanes == 1);
  CHECK(bench.limits.learned().empty());
}

TEST_CASE("no plan is made if not even one picture fits") {
  Bench bench;
  bench.each = 10'000 * kilo;
  CHECK_THROWS_AS(bench.plan(1'000 * kilo), OutOfMemoryError);
}

TEST_CASE("if pictures alone may need too much memory, calls keep their size and the plan says so") {
  Bench bench;
  bench.each = kilo;
  const auto plan = bench.plan(180 * kilo);
  REQUIRE(plan);
  CHECK(plan->lanes == 1);
  CHECK(plan->smaller_calls.empty());
  CHECK(plan->text().find("lower batch.size or gate.slab") != std::string::npos);
}

TEST_CASE("with a share, more memory never leads to smaller calls") {
  struct Row {
    std::int64_t each;
    const char* share;
    bool hoards;
  };
  std::vector<Row> rows;
  for (const std::int64_t each : {50 * kilo, 65 * kilo, 100 * kilo}) {
    for (const char* share : {"0.5", "0.9"}) {
      for (const bool hoards : {false, true}) rows.push_back({each, share, hoards});
    }
  }
  for (const Row& row : rows) {
    CAPTURE(row.each);
    CAPTURE(row.share);
    CAPTURE(row.hoards);
    int most_pictures = 0, most_boxes = 0;
    for (std::int64_t bytes = 300 * kilo; bytes <= 7'000 * kilo; bytes += 100 * kilo) {
      CAPTURE(bytes);
      Bench bench;
      bench.each = row.each;
      bench.hoards = row.hoards;
      bench.slab = 60 * kilo;  // the largest possible pictures of a batch take 960 kB
      bench.settings.set(std::string("device.memory=") + row.share);
      const auto plan = bench.plan(bytes);
      REQUIRE(plan);
      const auto rows_of = [&](const char* method, int whole) {
        const auto found = plan->smaller_calls.find({"sam abc", method});
        return found == plan->smaller_calls.end() ? whole : found->second;
      };
      const int pictures = rows_of("encode", 16), boxes = rows_of("decode", 8);
      CHECK(pictures >= most_pictures);
      CHECK(boxes >= most_boxes);
      most_pictures = pictures;
      most_boxes = boxes;
    }
    CHECK(most_pictures == 16);
    CHECK(most_boxes == 8);
  }
}

TEST_CASE("lanes keep what LibTorch keeps for later calls; a call needs only what it uses at once") {
  Bench bench;
  bench.hoards = true;
  const auto plan = bench.plan(10'000 * kilo);
  REQUIRE(plan);
  CHECK(plan->calls_bytes >= 2'400 * kilo);  // 16 pictures and 8 boxes
  CHECK(plan->calls_bytes < 2'410 * kilo);
  CHECK(plan->stage_bytes.at("segment") >= 1'600 * kilo);
  CHECK(plan->stage_bytes.at("segment") < 1'610 * kilo);
  CHECK(plan->smaller_calls.empty());
}

TEST_CASE("a limit in bytes is kept, if need be by calls of one picture") {
  Bench bench;
  bench.slab = 60 * kilo;
  bench.settings.set("device.memory=1180k");  // 960 kB of slabs, 50 kB of models, and calls of at least 100 kB
  const auto plan = bench.plan(100'000 * kilo);
  REQUIRE(plan);
  CHECK(plan->smaller_calls.at({"sam abc", "encode"}) == 1);
  CHECK(plan->bytes() <= plan->limit_bytes);
}

TEST_CASE("shares and bytes") {
  constexpr std::int64_t mega = 1 << 20;
  const DeviceMemory memory{100 * mega, 200 * mega};
  CHECK(memory_limit("0.5", memory) == 50 * mega);
  CHECK(memory_limit("1", memory) == 100 * mega);
  CHECK(memory_limit("70M", memory) == 70 * mega);
  CHECK(memory_limit("1G", memory) == 100 * mega);
  for (const char* wrong : {"", "0", "-1", "2", "80", "lots", "0.9x", "90%"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(memory_limit(wrong, memory), UsageError);
  }
}

/// A temporary folder for the file of limits.
struct Folder {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("millrace-limits-" + std::to_string(::getpid()));
  const std::string file = path / "state/limits.json";
  ~Folder() { std::filesystem::remove_all(path); }
};

const CallLimits::Key encode{"sam abc", "encode"}, decode{"sam abc", "decode"};

TEST_CASE("later runs with the same memory or less use the limits that runs learned") {
  const Folder folder;
  const KnownLimits known(folder.file);
  const Bench bench;
  const auto recalled = [&](const std::string& device, std::int64_t bytes, const char* method = "encode") {
    CallLimits limits;
    const bool any = known.recall(device, bytes, bench.packages, limits);
    CHECK(any == (limits.max_rows("sam abc", "encode") != CallLimits::none ||
                  limits.max_rows("sam abc", "decode") != CallLimits::none));
    return limits.max_rows("sam abc", method);
  };
  CHECK(recalled("a GPU", 1000) == CallLimits::none);  // the file does not exist yet
  known.remember("a GPU", 1000, bench.packages, {{encode, 4}, {decode, 8}, {{"elsewhere", "encode"}, 1}});
  CHECK(recalled("a GPU", 1000) == 4);
  CHECK(recalled("a GPU", 900) == 4);
  CHECK(recalled("a GPU", 1040) == 4);
  CHECK(recalled("a GPU", 1100) == CallLimits::none);
  CHECK(recalled("another GPU", 1000) == CallLimits::none);
  known.remember("another GPU", 1000, bench.packages, {{encode, 2}});
  known.remember("a GPU", 500, bench.packages, {{encode, 2}});
  CHECK(recalled("another GPU", 1000) == 2);
  CHECK(recalled("a GPU", 1000) == CallLimits::none);  // the limit for less memory replaced it
  CHECK(recalled("a GPU", 1000, "decode") == 8);       // other limits stay
  CHECK(recalled("a GPU", 500) == 2);
  known.remember("a GPU", 1, bench.packages, {});
  CHECK(recalled("a GPU", 500) == 2);
  std::ofstream(folder.file) << "[{";
  CHECK(recalled("a GPU", 500) == CallLimits::none);
  known.remember("a GPU", 500, bench.packages, {{encode, 2}});
  CHECK(recalled("a GPU", 500) == 2);
}

TEST_CASE("a plan begins with known limits, and names their file") {
  const Folder folder;
  Bench bench;
  bench.known_file = folder.file;
  KnownLimits(folder.file).remember("a GPU", 10'000 * kilo, bench.packages, {{encode, 4}, {decode, 60}});
  const auto plan = bench.plan(10'000 * kilo);
  REQUIRE(plan);
  CHECK(plan->smaller_calls == std::map<CallLimits::Key, int>{{encode, 4}});  // no call has 60 boxes
  CHECK(plan->calls_bytes < 810 * kilo);                                      // calls of 8 boxes
  CHECK(plan->text().find(folder.file) != std::string::npos);
}

}  // namespace
}  // namespace millrace
