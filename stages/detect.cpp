#include "stages/detect.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/nearest.hpp"
#include "gpu/device.hpp"
#include "io/files/json_writer.hpp"
#include "stages/model_call.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {
namespace {

constexpr const char* forward = "forward";

// Rows of a chunk, then zeros up to `count`, as one tensor: a view where they follow each other, none is blank and
// there are no zeros, else a copy.
Tensor take_rows(Device& device, const Tensor& images, int first, std::span<const int> rows,
                 const std::vector<bool>& blank, int count) {
  const auto is_blank = [&](int row) { return blank[static_cast<std::size_t>(row)]; };
  bool plain = static_cast<std::size_t>(count) == rows.size() && std::none_of(rows.begin(), rows.end(), is_blank);
  for (std::size_t i = 1; i < rows.size(); ++i) plain = plain && rows[i] == rows[i - 1] + 1;
  Tensor taken = images;
  taken.shape[0] = count;
  if (plain) {
    taken.data = images.row(first + rows.front()).data;
    return taken;
  }
  taken = device.empty(taken.shape, images.dtype);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const Tensor target = taken.row(static_cast<std::int64_t>(i));
    if (i >= rows.size() || is_blank(rows[i])) {
      device.zero(target);
    } else {
      device.copy(images.row(first + rows[i]), target);
    }
  }
  return taken;
}

HeadSpec head_of(const Package& package) {
  HeadSpec head;
  head.layout = static_cast<HeadLayout>(package.number("layout"));
  head.input_width = package.input.width;
  head.input_height = package.input.height;
  head.classes = static_cast<int>(package.classes.size());
  const auto& strides = package.numbers("strides");
  std::copy_n(strides.begin(), std::min(strides.size(), head.strides.size()), head.strides.begin());
  return head;
}

// Whether an entry of detect.classes means this class, by name or number.
bool is_class(const std::string& entry, std::size_t id, const std::vector<std::string>& names) {
  return entry == names[id] || entry == std::to_string(id);
}

}  // namespace

std::string_view Detections::name_of(std::size_t i) const {
  const auto id = static_cast<std::size_t>(list[i].class_id);
  return class_names != nullptr && id < class_names->size() ? std::string_view((*class_names)[id]) : std::string_view();
}

void write_detection(const Detections& detections, std::size_t index, JsonWriter& json) {
  const Detection& d = detections.list[index];
  json.key(detection_keys("box"))
      .begin_array()
      .rounded(d.x0, 2)
      .rounded(d.y0, 2)
      .rounded(d.x1 - d.x0, 2)
      .rounded(d.y1 - d.y0, 2)
      .end_array();
  json.key(detection_keys("score")).rounded(d.score, 5).key(detection_keys("class")).value(d.class_id);
  if (const auto known = detections.name_of(index); !known.empty()) json.key(detection_keys("name")).value(known);
}

void write_detector(const std::string& package, JsonWriter& json) { json.value(package); }

void Detect::Options::visit(OptionVisitor& v) {
  v.package("model", model, "package folder of the detector; views may name others");
  v.option("conf", conf, "least score of a detection", {0, 1});
  v.option("iou", iou, "overlap above which the lower score of a class is dropped", {0, 1});
  v.option("max_detections", max_detections, "most detections kept for a picture, best first", {1, 65535});
  v.option("min_area", min_area, "smaller boxes are dropped, in picture pixels", {0, 1e12});
  v.option("classes", classes, "keep these classes only, by name or number");
  v.option("class_agnostic", class_agnostic, "drop overlapping boxes of different classes too");
  v.option("exec_batch", exec_batch, "pictures a model call; 0: the batch, at most what the package allows", {0, 1024});
  v.option("pad", pad, "pad calls to powers of two of pictures, so that they have few shapes");
  v.option("skip_with_boxes", skip_with_boxes,
           "no: the detector sees pictures with boxes in the manifest too, only to measure");
}

StageInfo Detect::info(const Options& options) {
  ModelUse model{.option = "model",
                 .folder = options.model,
                 .task = "detect",
                 .calls = {{.method = forward, .rows = options.exec_batch}},
                 .padded = options.pad,
                 .boxes_replace = true,
                 .remedy = "add --detector PACKAGE, or give the boxes in a CSV or JSONL manifest"};
  return {.name = name,
          .section = Section::lane,
          .summary = "YOLO head and class-aware NMS",
          .reads = {&model_inputs},
          .writes = {&detections, &detector},
          .uses = {},
          .counters = {&detector_calls, &detector_skipped, &truncated_detections},
          .models = {std::move(model)},
          .objects = options.max_detections};
}

Detect::Detect(const Options& options, const StageContext& context) : options_(options), context_(context) {
  if (options.model.empty()) return;
  model_.emplace(context.models, info(options).models.front());
  const auto& names = model_->package().classes;
  for (const auto& wanted_class : options.classes) {
    bool known = false;
    for (std::size_t id = 0; id < names.size(); ++id) known = known || is_class(wanted_class, id, names);
    if (known) continue;
    throw UsageError("detect.classes: the detector " + model_->package().name + " has no class '" + wanted_class + "'" +
                     did_you_mean(wanted_class, names, "`millrace inspect " + options.model + "` lists them"));
  }
}

void Detect::run(Batch& batch) {
  for (const auto& frame : batch.frames) {
    if (frame->failed() || !frame->item.boxes) continue;
    if (options_.skip_with_boxes) ++context_.counters[detector_skipped];
    from_manifest(*frame);
  }
  const int slots = static_cast<int>(batch.frames.size());
  if (!model_) {
    for (const auto& frame : batch.frames) {
      if (!frame->failed() && !frame->item.boxes) {
        frame->fail(name, Reason::no_boxes,
                    "the view has no detector and the manifest no boxes for this picture; name a --detector");
      }
    }
    return;
  }
  const ModelInput& input = batch.columns.get(model_inputs).at(options_.model);
  const int chunk = model_->maximum(forward);
  const auto found = std::make_shared<std::vector<FoundBoxes>>(batch.frames.size());
  for (int first = 0; first < slots; first += chunk)
    run_chunk(batch, input, first, std::min(chunk, slots - first), found);
  context_.device->wait();
  for (std::size_t slot = 0; slot < found->size(); ++slot) {
    Frame& frame = *batch.frames[slot];
    if (!frame.failed() && !frame.item.boxes) take(frame, std::move((*found)[slot]));
  }
}

std::shared_ptr<const std::vector<std::string>> Detect::class_names() const {
  if (!model_) return nullptr;
  const auto package = model_->shared_package();
  return {package, &package->classes};
}

void Detect::from_manifest(Frame& frame) const {
  Detections found;
  found.class_names = class_names();
  const auto width = static_cast<float>(frame.info.width);
  const auto height = static_cast<float>(frame.info.height);
  for (const auto& box : *frame.item.boxes) {
    found.list.push_back({std::clamp(box.x, 0.0F, width), std::clamp(box.y, 0.0F, height),
                          std::clamp(box.x + box.width, 0.0F, width), std::clamp(box.y + box.height, 0.0F, height),
                          1.0F, box.class_id});
  }
  frame.columns.set(detections, std::move(found));
}

BoxSearch Detect::search() const {
  const Package& package = model_->package();
  BoxSearch search;
  search.head = head_of(package);
  search.least_score = static_cast<float>(options_.conf);
  search.iou_threshold = options_.iou;
  search.least_area = options_.min_area;
  search.class_aware = !options_.class_agnostic;
  search.most_boxes = options_.max_detections;
  if (options_.classes.empty()) return search;
  for (std::size_t id = 0; id < package.classes.size(); ++id) {
    search.wanted.push_back(std::any_of(options_.classes.begin(), options_.classes.end(),
                                        [&](const std::string& entry) { return is_class(entry, id, package.classes); })
                                ? 1
                                : 0);
  }
  return search;
}

void Detect::run_chunk(Batch& batch, const ModelInput& input, int first, int count,
                       const std::shared_ptr<std::vector<FoundBoxes>>& found) const {
  const auto frame_of = [&](int row) -> Frame& { return *batch.frames[static_cast<std::size_t>(first + row)]; };
  const auto waits = [&](int row) { return !frame_of(row).failed() && !frame_of(row).item.boxes; };
  const auto shown = [&](int row) { return waits(row) || (!options_.skip_with_boxes && !frame_of(row).failed()); };
  bool any = false;
  for (int row = 0; row < count; ++row) any = any || shown(row);
  if (!any) return;

  const auto engine = model_->engine();
  std::vector<int> pictures(static_cast<std::size_t>(count));
  std::iota(pictures.begin(), pictures.end(), 0);
  const auto outcomes = call_rows(
      pictures,
      [&](std::span<const int> rows, const std::vector<bool>& blank) {
        const int given = static_cast<int>(rows.size());
        return std::vector<Tensor>{
            take_rows(*context_.device, input.images, first, rows, blank, model_->padded(given, forward))};
      },
      [&](const std::vector<Tensor>& inputs) {
        ++context_.counters[detector_calls];
        return engine->call(forward, inputs, *context_.device);
      },
      [&] { return model_->limit(forward); }, context_.counters);

  const BoxSearch wanted = search();
  std::map<const std::vector<Tensor>*, std::vector<BoxTarget>> calls;  // those that were split have several
  for (int row = 0; row < count; ++row) {
    if (!waits(row)) continue;
    const RowOutcome& outcome = outcomes[static_cast<std::size_t>(row)];
    if (outcome.outputs == nullptr) {
      frame_of(row).fail(name, Reason::model_failed, outcome.error);
      continue;
    }
    frame_of(row).split = frame_of(row).split || outcome.split;
    const auto slot = static_cast<std::size_t>(first + row);
    calls[outcome.outputs.get()].push_back({outcome.row, input.geometry[slot], {found, &(*found)[slot]}});
  }
  for (const auto& [outputs, targets] : calls) find_boxes(*context_.device, outputs->front(), wanted, targets);
}

void Detect::take(Frame& frame, FoundBoxes found) const {
  if (!found.fault.empty()) return frame.fail(name, Reason::non_finite, found.fault);
  if (found.more) ++context_.counters[truncated_detections];
  Detections result;
  result.class_names = class_names();
  for (std::size_t i = 0; i < found.boxes.size(); ++i) {
    const Box& box = found.boxes[i];
    result.list.push_back({box.x0, box.y0, box.x1, box.y1, found.scores[i], found.classes[i]});
  }
  frame.columns.set(detector, model_->package().name);
  frame.columns.set(detections, std::move(result));
}

template StageEntry stage_entry<Detect>();

}  // namespace millrace
