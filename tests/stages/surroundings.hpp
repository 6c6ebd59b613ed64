#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gpu/device.hpp"
#include "models/cache.hpp"
#include "models/engines/deferred_engine.hpp"
#include "models/engines/fake_engine.hpp"
#include "stages/chain.hpp"
#include "stages/decode.hpp"
#include "stages/encode.hpp"
#include "stages/stage_models.hpp"

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

Package detector_package(const std::string& name = "fake-yolo", int max_batch = 16);

Package segmenter_package(int max_batch = 16, int max_boxes = 64);

Package embedder_package(const std::string& name = "fake-embedder", int max_batch = 16);

/// Red of the first pixel of picture `row` of images [B, 3, H, W].
int code_of(const Tensor& images, std::int64_t row);

/// A model's reaction to a picture's code, before it answers: tests throw from here.
using Before = std::function<void(const std::vector<int>& codes)>;

/// A v8 detector of three classes that answers by code; codes not listed have nothing.
FakeEngine::Function detector_by_code(std::map<int, std::vector<Answer>> answers, Before before = {});

/// An embedder whose vectors are (code, 1, code / 2, -code).
FakeEngine::Function embedder_by_code(Before before = {});

/// The predicted IoU that the fake segmenter gives to a box of a picture: no two of a test agree.
float fake_iou(int code, float x0, float y0);

/// A segmenter whose answers depend on the box, the picture's embedding (its code) and image_index. The mask is the box
/// as wide as the picture's code says, so that a box decoded on another picture's embedding shows.
FakeEngine::Function segmenter_by_code(Before before_encode = {}, Before before_decode = {});

/// Counts what is given back.
struct CountingBudget final : ByteBudget {
  void give_back(std::int64_t bytes) noexcept override { returned += bytes; }
  std::int64_t returned = 0;
};

/// All that a StageContext refers to. Add packages first, then take the context.
class Surroundings {
 public:
  explicit Surroundings(int batch_size = 16, std::int64_t model_budget = 1 << 30);
  ~Surroundings();

  /// A view with that detector; its name is the package's unless given.
  void add_view(const Package& package, FakeEngine::Function function, const std::string& view = "all") {
    const std::string folder = add(package, std::move(function));
    views_.push_back({view, "", {{"detect", {{"model", {folder}}}}}});
    models_.picture_inputs.push_back({{folder, 0}});
    source_.limits.emplace_back();
  }
  /// A view whose pictures have their boxes in a manifest.
  void add_view_without_detector() {
    views_.push_back({"all", "", {}});
    models_.picture_inputs.emplace_back();
    source_.limits.emplace_back();
  }
  void set_segmenter(const Package& package, FakeEngine::Function function) {
    segmenter_ = add(package, std::move(function));
    for (auto& inputs : models_.picture_inputs) inputs.push_back({segmenter_, 1});
  }

  /// Another model, whose folder is for the stages' options. Views come first.
  std::string add_model(const Package& package, FakeEngine::Function function, bool of_pictures) {
    const std::string folder = add(package, std::move(function));
    for (auto& inputs : models_.picture_inputs) {
      if (of_pictures) inputs.push_back({folder, inputs.size()});
    }
    return folder;
  }

  const StageContext& context() const { return context_; }
  PixelSource& source() { return source_; }
  /// Options of a stage that name its models, for the pictures of a view.
  OptionValues models_of(const std::string& stage, std::size_t view = 0) const;
  /// Calls of a method of a package so far.
  int calls(const Package& package, std::string_view method) const {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(package.folder.string() + " " + std::string(method));
    return found == calls_.end() ? 0 : found->second;
  }

  std::vector<std::string> loads;  // names of packages, in order
  Counters counters{counters_of()};
  std::string output_folder;

 private:
  std::string add(const Package& package, FakeEngine::Function function);

  mutable std::mutex mutex_;  // guards loads and calls_: lanes may run side by side
  std::vector<View> views_;
  std::string segmenter_;
  Packages packages_;
  PixelSource source_{.limits = {DecodeLimits{}}};
  std::map<std::string, FakeEngine::Function> functions_;
  std::map<std::string, int> calls_;  // the engines themselves are the cache's alone

 public:
  ModelCache& models() { return cache_; }

 private:
  ModelCache cache_;
  StageModels models_;
  Device device_;
  StageContext context_{models_, &device_, counters, views_, source_, output_folder};
};

/// A decoded picture of one colour, red being its code.
std::shared_ptr<Frame> picture(int code, int slot = 0, int slots = 1, int view = 0);

Batch batch_of(const std::vector<int>& codes, int view = 0);

/// A recipe's stages after `decode`, run one after another on a batch as a lane does.
class RecipeLane {
 public:
  using Values = std::map<std::string, OptionValues>;

  RecipeLane(const Surroundings& surroundings, const std::vector<StagePlace>& stages, const Values& values = {},
             std::unique_ptr<Device> device = std::make_unique<Device>(),
             const std::vector<StageEntry>& table = stage_table());
  ~RecipeLane();

  void run(Batch& batch);

 private:
  struct ViewStages {
    Chain chain;
    std::vector<std::pair<const ChainLink*, std::unique_ptr<LaneStage>>> lane_stages{};
    std::vector<std::pair<const ChainLink*, std::unique_ptr<BatchStage>>> batch_stages{};
  };

  std::unique_ptr<Device> device_;
  StageContext context_;
  std::deque<ViewStages> views_;
};

/// The segment line of a frame, as a reader sees it.
nlohmann::json line_of(const Frame& frame, const StageContext& context);

/// The lines of a batch, as bytes.
std::vector<std::string> lines_of(const Batch& batch, const StageContext& context);

/// Fails a call that shows that code.
Before fails_on(int code);

/// Runs out of memory on more than `most` pictures.
Before holds(std::size_t most);

}  // namespace millrace
