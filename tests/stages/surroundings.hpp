#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gpu/host_device.hpp"
#include "models/cache.hpp"
#include "models/engines/deferred_engine.hpp"
#include "models/engines/fake_engine.hpp"
#include "stages/chain.hpp"
#include "stages/decode.hpp"
#include "stages/encode.hpp"

/// What the tests of stages share: pictures of one colour, models that answer by that colour, and a lane to run them.
///
/// Pictures and model inputs are 64 x 64, so letterboxing changes nothing and red of the first pixel arrives at the
/// models: it is the picture's `code`. A blank row of a batch has code 0.
namespace millrace {

inline constexpr int side = 64;

/// What the fake detector finds: a box in picture pixels.
struct Answer {
  float x0, y0, x1, y1, score;
  int class_id = 0;
};

inline Package detector_package(const std::string& name = "fake-yolo", int max_batch = 16) {
  Package package;
  package.folder = "/" + name;
  package.name = name;
  package.task = Task::detect;
  package.input.width = package.input.height = side;
  package.layout = OutputLayout::v8;
  package.strides = {8, 16, 32};
  package.classes = {"cat", "dog", "bird"};
  package.max_batch = max_batch;
  package.fingerprint = "hash of " + name;
  return package;
}

inline Package segmenter_package(int max_batch = 16, int max_boxes = 64) {
  Package package;
  package.folder = "/fake-sam";
  package.name = "fake-sam";
  package.task = Task::segment;
  package.input.width = package.input.height = side;
  package.input.mode = ResizeMode::longest_side;
  package.embedding = {1, 2, 2};
  package.logits = {16, 16};
  package.max_batch = max_batch;
  package.max_boxes = max_boxes;
  package.fingerprint = "hash of fake-sam";
  return package;
}

/// Red of the first pixel of picture `row` of images [B, 3, H, W].
inline int code_of(const Tensor& images, std::int64_t row) {
  return static_cast<int>(images.host<const float>()[static_cast<std::size_t>(row * 3 * side * side)]);
}

/// A model's reaction to a picture's code, before it answers: tests throw from here.
using Before = std::function<void(const std::vector<int>& codes)>;

/// A v8 detector of three classes that answers by code; codes not listed have nothing.
inline FakeEngine::Function detector_by_code(std::map<int, std::vector<Answer>> answers, Before before = {}) {
  return [answers = std::move(answers), before = std::move(before)](std::string_view, std::span<const Tensor> inputs) {
    constexpr std::size_t anchors = 64 + 16 + 4, channels = 4 + 3;
    const std::int64_t batch = inputs[0].shape[0];
    std::vector<int> codes;
    for (std::int64_t b = 0; b < batch; ++b) codes.push_back(code_of(inputs[0], b));
    if (before) before(codes);
    Tensor output = Tensor::empty({batch, channels, anchors});
    const auto values = output.host<float>();
    std::fill(values.begin(), values.end(), 0.0F);
    for (std::size_t b = 0; b < codes.size(); ++b) {
      const auto found = answers.find(codes[b]);
      if (found == answers.end()) continue;
      for (std::size_t i = 0; i < found->second.size(); ++i) {
        const Answer& a = found->second[i];
        const auto channel = [&](std::size_t c) -> float& { return values[(b * channels + c) * anchors + i]; };
        channel(0) = (a.x0 + a.x1) / 2;
        channel(1) = (a.y0 + a.y1) / 2;
        channel(2) = a.x1 - a.x0;
        channel(3) = a.y1 - a.y0;
        channel(4 + static_cast<std::size_t>(a.class_id)) = a.score;
      }
    }
    return std::vector<Tensor>{output};
  };
}

/// The predicted IoU that the fake segmenter gives to a box of a picture: no two of a test agree.
inline float fake_iou(int code, float x0, float y0) {
  return 0.25F + static_cast<float>(code) / 1024 + x0 / 4096 + y0 / 262144;
}

/// A segmenter whose answers depend on the box, the picture's embedding (its code) and image_index. The mask is the box
/// as wide as the picture's code says, so that a box decoded on another picture's embedding shows.
inline FakeEngine::Function segmenter_by_code(Before before_encode = {}, Before before_decode = {}) {
  return [before_encode, before_decode](std::string_view method, std::span<const Tensor> inputs) {
    if (method == "encode") {
      std::vector<int> codes;
      for (std::int64_t b = 0; b < inputs[0].shape[0]; ++b) codes.push_back(code_of(inputs[0], b));
      if (before_encode) before_encode(codes);
      Tensor embedding = Tensor::empty({inputs[0].shape[0], 1, 2, 2});
      for (std::size_t i = 0; i < codes.size() * 4; ++i) embedding.host<float>()[i] = static_cast<float>(codes[i / 4]);
      return std::vector<Tensor>{embedding};
    }
    const auto pictures = static_cast<std::size_t>(inputs[0].shape[0]);
    const auto count = static_cast<std::size_t>(inputs[1].shape[0]);
    if (inputs[2].shape != std::vector<std::int64_t>{inputs[1].shape[0]}) throw std::logic_error("index and boxes");
    std::vector<int> codes;
    for (std::size_t p = 0; p < pictures; ++p) codes.push_back(static_cast<int>(inputs[0].host<const float>()[4 * p]));
    if (before_decode) before_decode(codes);
    Tensor logits = Tensor::empty({static_cast<std::int64_t>(count), 16, 16});
    Tensor iou = Tensor::empty({static_cast<std::int64_t>(count)});
    for (std::size_t n = 0; n < count; ++n) {
      const float* box = &inputs[1].host<const float>()[4 * n];
      const int code = codes.at(static_cast<std::size_t>(inputs[2].host<const std::int64_t>()[n]));
      const float right = box[0] + (box[2] - box[0]) * (1 + static_cast<float>(code % 8)) / 8;
      for (std::size_t y = 0; y < 16; ++y) {
        for (std::size_t x = 0; x < 16; ++x) {
          const float cx = 4 * static_cast<float>(x) + 2, cy = 4 * static_cast<float>(y) + 2;
          const bool inside = cx >= box[0] && cx < right && cy >= box[1] && cy < box[3];
          logits.host<float>()[(n * 16 + y) * 16 + x] = inside ? 2.0F : -2.0F;
        }
      }
      iou.host<float>()[n] = fake_iou(code, box[0], box[1]);
    }
    return std::vector<Tensor>{logits, iou};
  };
}

/// Counts what is given back.
struct CountingBudget final : ByteBudget {
  void give_back(std::int64_t bytes) noexcept override { returned += bytes; }
  std::int64_t returned = 0;
};

/// All that a StageContext refers to. Add packages first, then take the context.
class Surroundings {
 public:
  explicit Surroundings(int batch_size = 16, std::int64_t model_budget = 1 << 30)
      : batch_size_(batch_size), models_(model_budget, [this](const Package& package, const EngineOptions&) {
          const std::lock_guard lock(mutex_);
          loads.push_back(package.name);
          return std::make_shared<DeferredEngine>(
              package, std::make_shared<FakeEngine>(functions_.at(package.folder.string()), "", 100));
        }) {}

  /// A view with that detector; its name is the package's unless given.
  void add_view(const Package& package, FakeEngine::Function function, const std::string& view = "all") {
    views_.push_back({view, "", add(package, std::move(function))});
  }
  /// A view whose pictures have their boxes in a manifest.
  void add_view_without_detector() { views_.push_back({"all", "", ""}); }
  void set_segmenter(const Package& package, FakeEngine::Function function) {
    segmenter_ = add(package, std::move(function));
  }

  const StageContext& context() const { return context_; }
  /// Calls of a method of a package so far.
  int calls(const Package& package, std::string_view method) const {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(package.folder.string() + " " + std::string(method));
    return found == calls_.end() ? 0 : found->second;
  }

  std::vector<std::string> loads;  // names of packages, in order
  StageCounters counters;
  DecodeLimits decode_limits;
  std::string output_folder, input_root;

 private:
  std::string add(const Package& package, FakeEngine::Function function) {
    const std::string folder = package.folder.string();
    packages_[folder] = std::make_shared<const Package>(package);
    functions_[folder] = [this, folder, function = std::move(function)](std::string_view method, auto inputs) {
      {
        const std::lock_guard lock(mutex_);
        ++calls_[folder + " " + std::string(method)];
      }
      return function(method, inputs);
    };
    return folder;
  }

  mutable std::mutex mutex_;  // guards loads and calls_: lanes may run side by side
  int batch_size_;
  std::vector<View> views_;
  std::string segmenter_;
  std::map<std::string, std::shared_ptr<const Package>> packages_;
  std::map<std::string, FakeEngine::Function> functions_;
  std::map<std::string, int> calls_;  // the engines themselves are the cache's alone

 public:
  ModelCache& models() { return models_; }

 private:
  ModelCache models_;
  HostDevice device_;
  StageContext context_{views_,      segmenter_, output_folder, input_root, decode_limits,
                        batch_size_, packages_,  models_,       counters,   &device_};
};

/// A decoded picture of one colour, red being its code.
inline std::shared_ptr<Frame> picture(int code, int slot = 0, int slots = 1, int view = 0) {
  Item item;
  item.id = slot;
  item.path = "picture" + std::to_string(slot) + ".png";
  item.view = view;
  auto frame = std::make_shared<Frame>(item, Place{0, slot, slots, 0, 0});
  frame->info.width = frame->info.height = frame->info.pixel_width = frame->info.pixel_height = side;
  frame->info.pixel_bytes = std::int64_t{3} * side * side;
  PixelBuffer raster{side, side, {new std::uint8_t[3 * side * side], std::default_delete<std::uint8_t[]>()}};
  for (int i = 0; i < 3 * side * side; ++i)
    raster.data.get()[i] = static_cast<std::uint8_t>(i % 3 == 0 ? code : 10 * (i % 3));
  frame->columns.set(pixels, std::move(raster));
  return frame;
}

inline Batch batch_of(const std::vector<int>& codes, int view = 0) {
  std::vector<std::shared_ptr<Frame>> frames;
  for (std::size_t i = 0; i < codes.size(); ++i)
    frames.push_back(picture(codes[i], static_cast<int>(i), static_cast<int>(codes.size()), view));
  return Batch(std::move(frames));
}

/// A recipe's stages after `decode`, run one after another on a batch as a lane does.
class Lane {
 public:
  using Values = std::map<std::string, OptionValues>;

  Lane(const StageContext& context, const std::vector<std::string>& stages, const Values& values = {},
       std::unique_ptr<Device> device = std::make_unique<HostDevice>())
      : device_(std::move(device)), context_(context), chain_(with_decode(stages), [&](const std::string& stage) {
          const auto found = values.find(stage);
          return found == values.end() ? OptionValues{} : found->second;
        }) {
    context_.device = device_.get();
    for (const auto& link : chain_.links()) {
      if (link.entry->make_lane_stage)
        lane_stages_.emplace_back(&link, link.entry->make_lane_stage(link.options, context_));
      if (link.entry->make_batch_stage)
        batch_stages_.emplace_back(&link, link.entry->make_batch_stage(link.options, context_));
    }
  }

  void run(Batch& batch) {
    for (const auto& [link, stage] : lane_stages_) run_stage(*link, *stage, batch);
    for (const auto& [link, stage] : batch_stages_) run_stage(*link, *stage, batch);
    batch.columns.allow(nullptr);
    for (const auto& frame : batch.frames) frame->columns.allow(nullptr);
  }

 private:
  static std::vector<std::string> with_decode(std::vector<std::string> stages) {
    stages.insert(stages.begin(), "decode");
    return stages;
  }

  std::unique_ptr<Device> device_;
  StageContext context_;
  Chain chain_;
  std::vector<std::pair<const ChainLink*, std::unique_ptr<LaneStage>>> lane_stages_;
  std::vector<std::pair<const ChainLink*, std::unique_ptr<BatchStage>>> batch_stages_;
};

/// The segment line of a frame, as a reader sees it.
inline nlohmann::json line_of(const Frame& frame, const StageContext& context) {
  return nlohmann::json::parse(make_segment_line(frame, context.views));
}

/// The lines of a batch, as bytes.
inline std::vector<std::string> lines_of(const Batch& batch, const StageContext& context) {
  std::vector<std::string> lines;
  for (const auto& frame : batch.frames) lines.push_back(make_segment_line(*frame, context.views));
  return lines;
}

/// Fails a call that shows that code.
inline Before fails_on(int code) {
  return [code](const std::vector<int>& codes) {
    if (std::find(codes.begin(), codes.end(), code) != codes.end()) throw ModelError("cannot bear this picture");
  };
}

/// Runs out of memory on more than `most` pictures.
inline Before holds(std::size_t most) {
  return [most](const std::vector<int>& codes) {
    if (codes.size() > most) throw OutOfMemoryError("no memory for so many");
  };
}

}  // namespace millrace
