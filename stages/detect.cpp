#include "stages/detect.hpp"

#include <algorithm>

#include "base/nearest.hpp"
#include "gpu/device.hpp"
#include "io/files/json_writer.hpp"
#include "stages/model_call.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {
namespace {

constexpr const char* forward = "forward";

HeadSpec head_of(const Package& package) {
  // The number is the position of the word in models/tasks/detect.cpp, where the order is that of HeadLayout.
  return {.layout = static_cast<HeadLayout>(package.number("layout")),
          .boxes = package.number("boxes"),
          .classes = static_cast<int>(package.classes.size())};
}

// Whether an entry of detect.classes means this class, by name or number.
bool is_class(const std::string& entry, std::size_t id, const std::vector<std::string>& names) {
  return entry == names[id] || entry == std::to_string(id);
}

// Runs before the run starts (ModelUse::check). A misspelt class would match nothing.
void check_classes(const std::vector<std::string>& wanted, const std::string& folder, const Package& package) {
  const auto& names = package.classes;
  for (const auto& entry : wanted) {
    bool known = false;
    for (std::size_t id = 0; id < names.size(); ++id) known = known || is_class(entry, id, names);
    if (known) continue;
    throw UsageError("detect.classes: the detector " + package.name + " has no class '" + entry + "'" +
                     did_you_mean(entry, names, "`millrace inspect " + folder + "` lists them"));
  }
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
  v.option("conf", conf, "minimum score of a detection", {0, 1});
  v.option("iou", iou,
           "overlap (IoU) above which the box with the lower score is dropped, within a class; no effect on end_to_end",
           {0, 1});
  v.option("max_detections", max_detections, "maximum number of detections in a picture; the best are kept",
           {1, 65535});
  v.option("min_area", min_area, "minimum area of a box in picture pixels; smaller boxes are dropped", {0, 1e12});
  v.option("classes", classes, "keep only these classes, by name or number");
  v.option("class_agnostic", class_agnostic, "drop overlapping boxes of different classes too");
  v.option("exec_batch", exec_batch, "pictures in a model call, up to the maximum of the package; 0: as batch.size",
           {0, 1024});
  v.option(
      "pad", pad,
      "pad the batch of a call to a power of two, so that the model sees few input shapes; a variant pads by itself");
  v.on_gpu("pad", "yes");
  v.option(
      "skip_with_boxes", skip_with_boxes,
      "no: the detector also finds boxes in pictures with boxes in the manifest, without effect; for measurements");
}

StageInfo Detect::info(const Options& options) {
  ModelUse model{.option = "model",
                 .folder = options.model,
                 .task = "detect",
                 .calls = {{.method = forward, .rows = options.exec_batch}},
                 .padded = options.pad,
                 .boxes_replace = true,
                 .check = [classes = options.classes,
                           folder = options.model](const Package& package) { check_classes(classes, folder, package); },
                 .remedy = "add --detector PACKAGE, or give the boxes in a CSV or JSONL manifest"};
  return {.name = name,
          .section = Section::lane,
          .summary = "YOLO head and class-aware NMS",
          .reads = {&model_inputs},
          .writes = {&detections, &detector},
          .uses = {},
          .counters = {&detector_calls, &detector_skipped, &truncated_detections},
          .models = {std::move(model)},
          .device = {.waits = 1},
          .objects = options.max_detections};
}

Detect::Detect(const Options& options, const StageContext& context) : options_(options), context_(context) {
  // Such a view takes all its boxes from the manifest.
  if (options.model.empty()) return;
  // The same ModelUse as in the plan of memory and the warm-up, so all three agree on the calls.
  model_.emplace(context.models, info(options).models.front());
}

void Detect::run(Batch& batch) {
  for (const auto& frame : batch.frames) {
    if (frame->failed() || !frame->item.boxes) continue;
    // Without the option, the detector finds boxes in the picture too, but nothing uses them.
    if (options_.skip_with_boxes) ++context_.counters[detector_skipped];
    from_manifest(*frame);
  }
  if (!model_) {
    for (const auto& frame : batch.frames) {
      if (!frame->failed() && !frame->item.boxes) {
        frame->fail(name, Reason::no_boxes,
                    "the view has no detector and the manifest has no boxes for this picture; add --detector PACKAGE");
      }
    }
    return;
  }
  const auto& geometry = batch.columns.get(model_inputs).at(options_.model).geometry;
  // The device fills it at the next wait. That can be the wait of a later batch, if a call throws before the wait here.
  // So the targets share ownership.
  const auto found = std::make_shared<std::vector<FoundBoxes>>(batch.frames.size());
  const std::vector<int> slots = every_slot(batch);
  const BoxSearch wanted = search();
  bool searched = false;
  call_rows(batch, context_,
            {.stage = name,
             .model = *model_,
             .method = forward,
             .calls = detector_calls,
             .owners = slots,
             .wanted = [&](int slot) { return !batch.frames[static_cast<std::size_t>(slot)]->item.boxes; },
             .take_unwanted = !options_.skip_with_boxes,
             .take =
                 [&](std::span<const TakenRow> rows) {
                   searched = searched || !rows.empty();
                   for (auto first = rows.begin(); first != rows.end();) {  // a split call has several outputs
                     const auto next = std::find_if(first, rows.end(),
                                                    [&](const TakenRow& row) { return row.outputs != first->outputs; });
                     std::vector<BoxTarget> targets;
                     for (const TakenRow& row : std::span(first, next)) {
                       // Each picture has one row (every_slot), so the index of a row is a slot.
                       const auto slot = static_cast<std::size_t>(row.row);
                       targets.push_back({row.at, geometry[slot], {found, &(*found)[slot]}});
                     }
                     find_boxes(*context_.device, first->outputs->front(), wanted, targets);
                     first = next;
                   }
                 }});
  // If all boxes come from a manifest, nothing on the device concerns this stage.
  if (!searched) return;
  // The only wait of the stage: take() and `segment` need the boxes on the host.
  context_.device->wait();
  for (std::size_t slot = 0; slot < found->size(); ++slot) {
    Frame& frame = *batch.frames[slot];
    if (!frame.failed() && !frame.item.boxes) take(frame, std::move((*found)[slot]));
  }
}

std::shared_ptr<const std::vector<std::string>> Detect::class_names() const {
  if (!model_) return nullptr;
  const auto package = model_->shared_package();
  return {package, &package->classes};  // owns the package, so the names live as long as the detections
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

// Needs a model: run() calls it only for views with a detector.
BoxSearch Detect::search() const {
  const Package& package = model_->package();
  BoxSearch search;
  search.head = head_of(package);
  search.min_score = static_cast<float>(options_.conf);
  // Nothing overlaps by more than 1: the model has removed overlaps.
  search.iou_threshold = search.head.layout == HeadLayout::end_to_end ? 1 : options_.iou;
  search.min_area = options_.min_area;
  search.class_aware = !options_.class_agnostic;
  search.max_boxes = options_.max_detections;
  if (options_.classes.empty()) return search;
  for (std::size_t id = 0; id < package.classes.size(); ++id) {
    // One flag for each class, because kernels have no names to compare.
    search.wanted.push_back(std::any_of(options_.classes.begin(), options_.classes.end(),
                                        [&](const std::string& entry) { return is_class(entry, id, package.classes); })
                                ? 1
                                : 0);
  }
  return search;
}

void Detect::take(Frame& frame, FoundBoxes found) const {
  if (!found.fault.empty())
    return frame.fail(name, found.unknown_class ? Reason::model_failed : Reason::non_finite, found.fault);
  if (found.more) ++context_.counters[truncated_detections];
  Detections result;
  result.class_names = class_names();
  for (std::size_t i = 0; i < found.boxes.size(); ++i) {
    const Box& box = found.boxes[i];
    result.list.push_back({box.x0, box.y0, box.x1, box.y1, found.scores[i], found.classes[i]});
  }
  // The name and not the folder, so that segments do not depend on where the package is.
  frame.columns.set(detector, model_->package().name);
  frame.columns.set(detections, std::move(result));
}

template StageEntry stage_entry<Detect>();

}  // namespace millrace
