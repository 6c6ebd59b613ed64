#include "tests/stages/stage_fixture.hpp"

#include <array>

#include "tests/models/engines/variant_like.hpp"

namespace millrace {
namespace {

std::vector<RecipeStage> with_decode(std::vector<RecipeStage> stages) {
  stages.insert(stages.begin(), "decode");
  return stages;
}

}  // namespace

StageFixture::StageFixture(int batch_size, std::int64_t model_budget)
    : cache_(model_budget,
             [this](const Package& package, const EngineOptions&) -> std::shared_ptr<Engine> {
               const std::lock_guard lock(mutex_);
               loads.push_back(package.name);
               std::shared_ptr<Engine> engine =
                   std::make_shared<FakeEngine>(functions_.at(package.folder.string()), "", 100);
               if (engines_pad) engine = std::make_shared<VariantLike>(std::move(engine), std::vector{5, 7});
               return std::make_shared<DeferredEngine>(package, std::move(engine));
             }),
      models_{batch_size, packages_, &cache_} {}

OptionValues StageFixture::models_of(const std::string& stage, std::size_t view) const {
  if (stage == "segment" && !segmenter_.empty()) return {{"model", {segmenter_}}};
  const auto own = views_.at(view).options.find(stage);
  return own == views_.at(view).options.end() ? OptionValues{} : own->second;
}

StageFixture::~StageFixture() = default;

std::string StageFixture::add(const Package& package, FakeEngine::Function function) {
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

RecipeLane::RecipeLane(const StageFixture& fixture, const std::vector<RecipeStage>& stages, const Values& values,
                       std::unique_ptr<Device> device, const std::vector<StageEntry>& table)
    : device_(std::move(device)), context_(fixture.context()) {
  context_.device = device_.get();
  for (std::size_t view = 0; view < context_.views.size(); ++view) {
    ViewStages& own = views_.emplace_back(ViewStages{Chain(
        with_decode(stages),
        [&](const std::string& stage) {
          OptionValues all = fixture.models_of(stage, view);
          const auto found = values.find(stage);
          if (found != values.end()) all.insert(found->second.begin(), found->second.end());
          return all;
        },
        table)});
    for (const auto& link : own.chain.links()) {
      // Pictures of tests are decoded already.
      if (link.entry->make_frame_stage && link.info.name != Decode::name)
        own.frame_stages.emplace_back(&link, link.entry->make_frame_stage(link.options, context_, link.info));
      if (link.entry->make_lane_stage)
        own.lane_stages.emplace_back(&link, link.entry->make_lane_stage(link.options, context_, link.info));
      if (link.entry->make_batch_stage)
        own.batch_stages.emplace_back(&link, link.entry->make_batch_stage(link.options, context_, link.info));
    }
  }
}

void RecipeLane::run(Batch& batch) {
  const ViewStages& own = views_.at(static_cast<std::size_t>(batch.view()));
  for (const auto& [link, stage] : own.frame_stages) {
    for (const auto& frame : batch.frames) {
      if (frame->failed()) continue;
      try {
        run_stage(*link, *stage, *frame);
      } catch (...) {
        fail_frame(*frame, link->info.name, std::current_exception());
      }
    }
  }
  for (const auto& [link, stage] : own.lane_stages) run_stage(*link, *stage, batch);
  for (const auto& [link, stage] : own.batch_stages) run_stage(*link, *stage, batch);
  batch.columns.allow(nullptr);
  for (const auto& frame : batch.frames) frame->columns.allow(nullptr);
}

RecipeLane::~RecipeLane() = default;

Package detector_package(const std::string& name, int max_batch) {
  Package package;
  package.folder = "/" + name;
  package.name = name;
  package.task = &find_task("detect");
  package.input.width = package.input.height = side;
  package.output = {{"layout", {0}}, {"boxes", {84}}};
  package.classes = {"cat", "dog", "bird"};
  package.max_batch = max_batch;
  package.fingerprint = "hash of " + name;
  set_methods(package);
  return package;
}

Package segmenter_package(int max_batch, int max_boxes) {
  Package package;
  package.folder = "/fake-sam";
  package.name = "fake-sam";
  package.task = &find_task("segment");
  package.input.width = package.input.height = side;
  package.input.mode = ResizeMode::longest_side;
  package.output = {{"embedding", {1, 2, 2}}, {"logits", {16, 16}}, {"resize", {0}}, {"max_boxes", {max_boxes}}};
  package.max_batch = max_batch;
  package.fingerprint = "hash of fake-sam";
  set_methods(package);
  return package;
}

Package embedder_package(const std::string& name, int max_batch) {
  Package package;
  package.folder = "/" + name;
  package.name = name;
  package.task = &find_task("embed");
  package.input.width = package.input.height = side;
  package.output = {{"dimensions", {4}}, {"normalised", {0}}};
  package.max_batch = max_batch;
  package.fingerprint = "hash of " + name;
  set_methods(package);
  return package;
}

FakeEngine::Function embedder_by_code(Before before) {
  return [before](std::string_view, std::span<const Tensor> inputs) {
    std::vector<int> codes;
    for (std::int64_t b = 0; b < inputs[0].shape[0]; ++b) codes.push_back(code_of(inputs[0], b));
    if (before) before(codes);
    Tensor vectors = Tensor::empty({inputs[0].shape[0], 4});
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const auto code = static_cast<float>(codes[i]);
      std::ranges::copy(std::array{code, 1.0F, code / 2, -code},
                        vectors.host<float>().begin() + static_cast<std::ptrdiff_t>(4 * i));
    }
    return std::vector<Tensor>{vectors};
  };
}

int code_of(const Tensor& images, std::int64_t row) {
  return static_cast<int>(images.host<const float>()[static_cast<std::size_t>(row * 3 * side * side)]);
}

FakeEngine::Function detector_by_code(std::map<int, std::vector<Answer>> answers, Before before) {
  return [answers = std::move(answers), before = std::move(before)](std::string_view, std::span<const Tensor> inputs) {
    constexpr std::size_t boxes = 84, channels = 4 + 3;
    const std::int64_t batch = inputs[0].shape[0];
    std::vector<int> codes;
    for (std::int64_t b = 0; b < batch; ++b) codes.push_back(code_of(inputs[0], b));
    if (before) before(codes);
    Tensor output = Tensor::empty({batch, channels, boxes});
    const auto values = output.host<float>();
    std::fill(values.begin(), values.end(), 0.0F);
    for (std::size_t b = 0; b < codes.size(); ++b) {
      const auto found = answers.find(codes[b]);
      if (found == answers.end()) continue;
      for (std::size_t i = 0; i < found->second.size(); ++i) {
        const Answer& a = found->second[i];
        const auto channel = [&](std::size_t c) -> float& { return values[(b * channels + c) * boxes + i]; };
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

FakeEngine::Function segmenter_by_code(Before before_encode, Before before_decode) {
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

std::shared_ptr<Frame> picture(int code, int slot, int slots, int view) {
  Item item;
  item.id = slot;
  item.path = "picture" + std::to_string(slot) + ".png";
  item.view = view;
  auto frame = std::make_shared<Frame>(item, PlanPosition{0, slot, slots, 0, 0});
  frame->info.width = frame->info.height = frame->info.pixel_width = frame->info.pixel_height = side;
  frame->info.pixel_bytes = std::int64_t{3} * side * side;
  PixelBuffer raster{side, side, {new std::uint8_t[3 * side * side], std::default_delete<std::uint8_t[]>()}};
  for (int i = 0; i < 3 * side * side; ++i)
    raster.data.get()[i] = static_cast<std::uint8_t>(i % 3 == 0 ? code : 10 * (i % 3));
  frame->columns.set(pixels, std::move(raster));
  return frame;
}

Batch batch_of(const std::vector<int>& codes, int view) {
  std::vector<std::shared_ptr<Frame>> frames;
  for (std::size_t i = 0; i < codes.size(); ++i)
    frames.push_back(picture(codes[i], static_cast<int>(i), static_cast<int>(codes.size()), view));
  return Batch(std::move(frames));
}

nlohmann::json line_of(const Frame& frame, const StageContext& context) {
  return nlohmann::json::parse(make_segment_line(frame, context.views));
}

std::vector<std::string> lines_of(const Batch& batch, const StageContext& context) {
  std::vector<std::string> lines;
  for (const auto& frame : batch.frames) lines.push_back(make_segment_line(*frame, context.views));
  return lines;
}

Before fails_on(int code) {
  return [code](const std::vector<int>& codes) {
    if (std::find(codes.begin(), codes.end(), code) != codes.end()) throw ModelError("cannot bear this picture");
  };
}

Before holds(std::size_t max_rows) {
  return [max_rows](const std::vector<int>& codes) {
    if (codes.size() > max_rows) throw OutOfMemoryError("no memory for so many");
  };
}

float fake_iou(int code, float x0, float y0) {
  return 0.25F + static_cast<float>(code) / 1024 + x0 / 4096 + y0 / 262144;
}

}  // namespace millrace
