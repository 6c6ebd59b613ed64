#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "gpu/device.hpp"
#include "models/cache.hpp"
#include "models/engines/deferred_engine.hpp"
#include "models/engines/fake_engine.hpp"
#include "stages/chain.hpp"
#include "stages/decode.hpp"
#include "stages/encode.hpp"
#include "stages/stage_models.hpp"

/// Fakes for the tests of stages: pictures of one colour, models whose output depends on that colour, and a lane.
///
/// A picture's `code` is the red value of its pixels. Pictures and model inputs are 64 x 64, so the letterbox changes
/// nothing, and models read the code from the first pixel. A blank row of a batch has code 0.
namespace millrace {

inline constexpr int side = 64;

/// An object that the fake detector finds, with its box in picture pixels.
struct Answer {
  float x0, y0, x1, y1, score;
  int class_id = 0;
};

Package detector_package(const std::string& name = "fake-yolo", int max_batch = 16);

Package segmenter_package(int max_batch = 16, int max_boxes = 64);

Package embedder_package(const std::string& name = "fake-embedder", int max_batch = 16);

/// The code of picture `row` of images [B, 3, H, W]: red of its first pixel.
int code_of(const Tensor& images, std::int64_t row);

/// A fake model calls this with the codes of its pictures before it computes; tests throw from here.
using Before = std::function<void(const std::vector<int>& codes)>;

/// A YOLOv8 detector of three classes that finds `answers` by code, and nothing for other codes.
FakeEngine::Function detector_by_code(std::map<int, std::vector<Answer>> answers, Before before = {});

/// An embedder whose vectors are (code, 1, code / 2, -code).
FakeEngine::Function embedder_by_code(Before before = {});

/// The predicted IoU that the fake segmenter gives to a box of a picture; different for all boxes of a test.
float fake_iou(int code, float x0, float y0);

/// A segmenter whose output depends on the box, the picture's embedding (its code) and image_index.
/// The mask is the box with a width that depends on the code. So a box decoded with another picture's embedding shows.
FakeEngine::Function segmenter_by_code(Before before_encode = {}, Before before_decode = {});

/// Counts the bytes that are given back.
struct CountingBudget final : ByteBudget {
  void give_back(std::int64_t bytes) noexcept override { returned += bytes; }
  std::int64_t returned = 0;
};

/// Owns everything that a StageContext refers to. Add packages first, then take the context.
class StageFixture {
 public:
  explicit StageFixture(int batch_size = 16, std::int64_t model_budget = 1 << 30);
  ~StageFixture();

  /// A view with that detector; its name is the package's unless given.
  void add_view(const Package& package, FakeEngine::Function function, const std::string& view = "all") {
    const std::string folder = add(package, std::move(function));
    views_.push_back({view, "", {{"detect", {{"model", {folder}}}}}});
    models_.picture_inputs.push_back({{folder, 0}});
    source_.limits.emplace_back();
  }
  /// Adds a view whose pictures have their boxes in a manifest.
  void add_view_without_detector() {
    views_.push_back({"all", "", {}});
    models_.picture_inputs.emplace_back();
    source_.limits.emplace_back();
  }
  void set_segmenter(const Package& package, FakeEngine::Function function) {
    segmenter_ = add(package, std::move(function));
    for (auto& inputs : models_.picture_inputs) inputs.push_back({segmenter_, 1});
  }

  /// Adds another model, after all views. Returns its folder, for the options of stages.
  std::string add_model(const Package& package, FakeEngine::Function function, bool of_pictures) {
    const std::string folder = add(package, std::move(function));
    for (auto& inputs : models_.picture_inputs) {
      if (of_pictures) inputs.push_back({folder, inputs.size()});
    }
    return folder;
  }

  const StageContext& context() const { return context_; }
  PixelSource& source() { return source_; }
  /// The options that name the models of a stage for a view.
  OptionValues models_of(const std::string& stage, std::size_t view = 0) const;
  /// The number of calls of a package's method so far.
  int calls(const Package& package, std::string_view method) const {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(package.folder.string() + " " + std::string(method));
    return found == calls_.end() ? 0 : found->second;
  }

  std::vector<std::string> loads;  // names of packages in the order of their loading
  bool engines_pad = false;        ///< models that are loaded later pad their calls, as variants do
  Counters counters{counters_of()};
  std::string output_folder;

 private:
  std::string add(const Package& package, FakeEngine::Function function);

  mutable std::mutex mutex_;  // guards loads and calls_: several lanes may run at the same time
  std::vector<View> views_;
  std::string segmenter_;
  Packages packages_;
  PixelSource source_{.limits = {DecodeLimits{}}};
  std::map<std::string, FakeEngine::Function> functions_;
  std::map<std::string, int> calls_;  // by folder and method; not in the engines, which belong to the cache

 public:
  ModelCache& models() { return cache_; }

 private:
  ModelCache cache_;
  StageModels models_;
  Device device_;
  StageContext context_{models_, &device_, counters, views_, source_, output_folder};
};

/// A decoded picture of one colour whose red value is `code`.
std::shared_ptr<Frame> picture(int code, int slot = 0, int slots = 1, int view = 0);

Batch batch_of(const std::vector<int>& codes, int view = 0);

/// Runs the stages of a recipe after `decode` on a batch, one after another, as a lane does.
class RecipeLane {
 public:
  using Values = std::map<std::string, OptionValues>;

  RecipeLane(const StageFixture& fixture, const std::vector<RecipeStage>& stages, const Values& values = {},
             std::unique_ptr<Device> device = std::make_unique<Device>(),
             const std::vector<StageEntry>& table = stage_table());
  ~RecipeLane();

  void run(Batch& batch);

 private:
  struct ViewStages {
    Chain chain;
    std::vector<std::pair<const ChainLink*, std::unique_ptr<FrameStage>>> frame_stages{};
    std::vector<std::pair<const ChainLink*, std::unique_ptr<LaneStage>>> lane_stages{};
    std::vector<std::pair<const ChainLink*, std::unique_ptr<BatchStage>>> batch_stages{};
  };

  std::unique_ptr<Device> device_;
  StageContext context_;
  std::deque<ViewStages> views_;
};

/// The parsed segment line of a frame.
nlohmann::json line_of(const Frame& frame, const StageContext& context);

/// The lines of a batch, as bytes.
std::vector<std::string> lines_of(const Batch& batch, const StageContext& context);

/// Fails calls with a picture of this code.
Before fails_on(int code);

/// Runs out of memory in calls with more than `most` pictures.
Before holds(std::size_t max_rows);

}  // namespace millrace
