#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/streams/fake_stream.hpp"
#include "models/engines/deferred_engine.hpp"
#include "models/engines/fake_engine.hpp"
#include "models/engines/wrapped_engine.hpp"
#include "run/execution.hpp"
#include "stages/decode.hpp"
#include "stages/model_call.hpp"
#include "stages/stage_entry.hpp"
#include "tests/stages/stage_fixture.hpp"

/// Fakes for the tests of lanes and executions: a recipe without files, models that may throw, devices.
///
/// Item `n` is a picture of one colour with the code n % 200 + 1: `read` sets the size and "decode" paints it.
namespace millrace {

inline int code_of(const Item& item) { return static_cast<int>(item.id % 200) + 1; }

/// Takes the place of "decode", and reads no file.
class Paint final : public FrameStage {
 public:
  explicit Paint(const StageContext& context) : source_(context.source) {}
  void run(Frame& frame) const override {
    constexpr std::size_t bytes = std::size_t{3} * side * side;
    std::shared_ptr<std::uint8_t> data =
        source_.memory ? std::static_pointer_cast<std::uint8_t>(source_.memory(bytes))
                       : std::shared_ptr<std::uint8_t>(new std::uint8_t[bytes], std::default_delete<std::uint8_t[]>());
    for (std::size_t i = 0; i < bytes; ++i)
      data.get()[i] =
          static_cast<std::uint8_t>(i % 3 == 0 ? static_cast<std::size_t>(code_of(frame.item)) : 10 * (i % 3));
    frame.columns.set(pixels, PixelBuffer{side, side, std::move(data)});
  }

 private:
  const PixelSource& source_;
};

/// The program's table of stages, with Paint as "decode".
inline std::vector<StageEntry> painted_table() {
  std::vector<StageEntry> table = stage_table();
  for (auto& entry : table) {
    if (entry.name == Decode::name)
      entry.make_frame_stage = [](const StageOptions&, const StageContext& context, const StageInfo&) {
        return std::make_unique<Paint>(context);
      };
  }
  return table;
}

/// Up to five boxes for each code.
inline std::map<int, std::vector<Answer>> boxes_by_code() {
  std::map<int, std::vector<Answer>> all;
  for (int code = 1; code <= 200; ++code) {
    for (int i = 0; i < code % 6; ++i) {
      const auto x = static_cast<float>((7 * code + 11 * i) % 40), y = static_cast<float>((13 * code + 5 * i) % 40);
      all[code].push_back({x, y, x + 12, y + 16, 0.3F + static_cast<float>(i) / 10, code % 3});
    }
  }
  return all;
}

/// Called when a stage asks for a model call. LibTorch also runs out of memory then, not when the device does the work.
using AtCall = std::function<void(std::string_view method, int rows)>;

class AskingEngine final : public WrappedEngine {
 public:
  AskingEngine(std::shared_ptr<Engine> engine, const Package& package, const AtCall& at_call, int& trims)
      : WrappedEngine(std::move(engine)), package_(package), at_call_(at_call), trims_(trims) {}
  using Engine::call;
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device& device) override {
    if (at_call_) at_call_(method, rows_of_call(package_, method, inputs));
    return engine_->call(method, inputs, device);
  }
  void trim() override { ++trims_; }

 private:
  const Package package_;
  const AtCall& at_call_;
  int& trims_;
};

/// A clock that only the test moves.
class ManualClock final : public Clock {
 public:
  std::int64_t now_ns() const noexcept override { return now_; }
  void advance(std::int64_t ns) { now_ += ns; }

 private:
  std::atomic<std::int64_t> now_{0};
};

/// Models, options and devices of a run, for tests to change before they make one.
struct LaneBench {
  Package detector = detector_package(), segmenter = segmenter_package();
  AtCall at_call{};                                              // when a call is asked for
  Before before_detector{}, before_encoder{}, before_decoder{};  // when the call is computed
  std::map<std::string, OptionValues> options{};
  std::vector<RecipeStage> stages{"decode", "preprocess", "detect", "segment", "postprocess", "encode"};
  std::string device = "cpu";
  int lanes = 1, batch_size = 8;
  std::int64_t budget = 1 << 30, engine_bytes = 100;
  int trims = 0;  // calls of Engine::trim() of any engine

  // The loads and calls of fake models; guarded by `mutex`.
  std::mutex mutex{};
  std::vector<std::string> loads{};
  std::vector<std::pair<std::string, int>> calls{};  // method and rows

  EngineFactory factory() {
    return [this](const Package& package, const EngineOptions&) -> std::shared_ptr<Engine> {
      {
        const std::lock_guard lock(mutex);
        loads.push_back(package.name);
      }
      auto answers = package.task == detector.task ? detector_by_code(boxes_by_code(), before_detector)
                                                   : segmenter_by_code(before_encoder, before_decoder);
      auto engine = std::make_shared<FakeEngine>(
          [this, package, answers = std::move(answers)](std::string_view method, std::span<const Tensor> inputs) {
            {
              const std::lock_guard lock(mutex);
              calls.emplace_back(method, rows_of_call(package, method, inputs));
            }
            return answers(method, inputs);
          },
          "", engine_bytes);
      return std::make_shared<AskingEngine>(std::make_shared<DeferredEngine>(package, std::move(engine)), package,
                                            at_call, trims);
    };
  }

  /// Rows of the calls of a method so far, in order.
  std::vector<int> rows(const std::string& method) {
    const std::lock_guard lock(mutex);
    std::vector<int> found;
    for (const auto& [name, count] : calls) {
      if (name == method) found.push_back(count);
    }
    return found;
  }
};

/// The parts of a run with the settings of a bench.
struct BenchParts {
  explicit BenchParts(LaneBench& bench)
      : table(painted_table()),
        config(Chain(
            bench.stages, [&](const std::string& stage) { return options_of(bench, stage); }, table)),
        devices(find_devices(bench.device)) {
    config.models.budget = bench.budget;
    config.device.memory = "1.0";
    packages[bench.detector.folder.string()] = std::make_shared<const Package>(bench.detector);
    if (config.chain.find("segment") != nullptr)
      packages[bench.segmenter.folder.string()] = std::make_shared<const Package>(bench.segmenter);
    resolved.batch_size = bench.batch_size;
    resolved.graph.max_batch = bench.batch_size;
    resolved.graph.lanes = bench.lanes;
    resolved.graph.workers = 2;
    resolved.graph.read_threads = 2;
    resolved.graph.slab_bytes = std::int64_t{3} * side * side;
    resolved.graph.admission_items = 6 * bench.batch_size;
    resolved.graph.byte_budget = 100 * bench.batch_size * resolved.graph.slab_bytes;
    views = {{"all", &config.chain}};
  }
  BenchParts(const BenchParts&) = delete;
  BenchParts& operator=(const BenchParts&) = delete;

  static OptionValues options_of(LaneBench& bench, const std::string& stage) {
    OptionValues values = bench.options[stage];
    if (stage == "detect") values["model"] = {bench.detector.folder.string()};
    if (stage == "segment") values["model"] = {bench.segmenter.folder.string()};
    return values;
  }

  const std::vector<StageEntry> table;
  Config config;
  Devices devices;
  Packages packages;
  ResolvedConfig resolved;
  std::vector<PlannedView> views;
};

/// A lane of a bench without a graph, on the bench's device or on the given stream.
class BenchLane {
 public:
  explicit BenchLane(LaneBench& bench, std::unique_ptr<Stream> stream = nullptr)
      : parts_(bench),
        models_(make_device_models(parts_.devices, parts_.resolved, parts_.config.models, bench.factory())),
        stage_models_{bench.batch_size, parts_.packages, nullptr, nullptr, {}, picture_inputs(parts_.views)},
        context_{stage_models_, nullptr, counters, names_, source_, none_},
        lane(parts_.views, context_, models_.front(),
             stream == nullptr ? make_device(parts_.devices, 0, "lane 0") : std::make_unique<Device>(std::move(stream)),
             [this](Frame& frame) {
               frame.columns.allow(nullptr);
               if (frame.columns.find(pixels) != nullptr) return;
               again.push_back(frame.item.id);
               Paint(context_).run(frame);
             }) {}

  void warm_up() { lane.warm_up(); }
  /// As the graph does, which skips stages if all pictures have failed.
  void run(Batch& batch) {
    const std::size_t stages = parts_.config.chain.of(Section::lane).size();
    for (std::size_t stage = 0; stage < stages && !batch.empty(); ++stage) lane.run(stage, batch);
    batch.columns.allow(nullptr);
    for (const auto& frame : batch.frames) frame->columns.allow(nullptr);
  }
  std::vector<std::string> lines(const Batch& batch) const { return lines_of(batch, context_); }
  DeviceModels& models() { return models_.front(); }

  /// Batch `number` of `size` pictures, the same as in an execution.
  Batch batch(int size, int number = 0) const {
    std::vector<std::shared_ptr<Frame>> frames;
    for (int slot = 0; slot < size; ++slot) {
      Item item;
      item.id = number * size + slot;
      item.path = std::to_string(item.id) + ".jpg";
      auto frame = std::make_shared<Frame>(item, PlanPosition{number, slot, size, 0, number});
      frame->info.width = frame->info.height = frame->info.pixel_width = frame->info.pixel_height = side;
      Paint(context_).run(*frame);
      frames.push_back(std::move(frame));
    }
    return Batch(std::move(frames));
  }

 private:
  BenchParts parts_;
  std::vector<DeviceModels> models_;
  const std::string none_;
  StageModels stage_models_;
  const std::vector<View> names_{{"all", "", {}}};
  const PixelSource source_{.limits = {DecodeLimits{}}, .memory = pixel_memory(parts_.devices)};

 public:
  ManualClock clock;
  Counters counters{counters_of_run()};
  std::vector<std::int64_t> again;  // items whose pixels were decoded again

 private:
  const StageContext context_;

 public:
  Lane lane;
};

/// An execution of a bench over `items` pictures: a run without files.
class BenchExecution {
 public:
  BenchExecution(LaneBench& bench, int items)
      : parts_(bench),
        items_(items),
        execution({parts_.config, parts_.resolved, parts_.packages, parts_.devices, parts_.views, ""}, bench.factory(),
                  clock) {}

  Result run() {
    ExecutionEnds ends;
    ends.idle = items_ == 0;
    ends.next = [this]() -> std::shared_ptr<Frame> {
      if (on_next) on_next(next_);
      if (next_ == items_) return nullptr;
      Item item;
      item.id = next_++;
      item.path = std::to_string(item.id) + ".jpg";
      const int size = parts_.resolved.batch_size;
      const auto batch = item.id / size;
      const auto in_batch = std::min<std::int64_t>(size, items_ - batch * size);
      return std::make_shared<Frame>(item, PlanPosition{batch, static_cast<int>(item.id % size),
                                                        static_cast<int>(in_batch), 0, static_cast<int>(batch)});
    };
    ends.read = [this](Frame& frame) {
      if (on_read) on_read(frame);
      frame.info.width = frame.info.height = frame.info.pixel_width = frame.info.pixel_height = side;
      frame.info.pixel_bytes = std::int64_t{3} * side * side;
    };
    ends.commit = [this](const Batch& batch, std::vector<std::string> texts) {
      if (on_commit) on_commit(batch);
      for (std::size_t i = 0; i < texts.size(); ++i) {
        CHECK(lines.emplace(batch.frames[i]->item.id, std::move(texts[i])).second);  // nothing is committed twice
      }
    };
    execution.prepare(std::move(ends));
    return execution.run();
  }

  /// Called on the source's thread before each item, with the item's number.
  std::function<void(std::int64_t)> on_next;
  std::function<void(Frame&)> on_read;
  std::function<void(const Batch&)> on_commit;
  std::map<std::int64_t, std::string> lines;  // by item

 private:
  BenchParts parts_;
  const std::int64_t items_;
  std::int64_t next_ = 0;

 public:
  ManualClock clock;
  Execution execution;
};

}  // namespace millrace
