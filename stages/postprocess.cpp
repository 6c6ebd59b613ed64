#include "stages/postprocess.hpp"

#include <map>
#include <string>

#include "gpu/device.hpp"
#include "io/results/json_line.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {

void write_mask(const std::vector<Mask>& masks, std::size_t index, JsonWriter& json) {
  const Mask& mask = masks[index];
  json.key(mask_keys("rle"));
  write_rle(mask.counts, mask.width, mask.height, json);
  json.key(mask_keys("iou")).rounded(mask.predicted_iou, 5).key(mask_keys("area")).value(mask.area);
}

void Postprocess::Options::visit(OptionVisitor& v) {
  v.option("mask_threshold", mask_threshold, "logit above which a pixel belongs to the mask");
}

StageInfo Postprocess::info(const Options& /*options*/) {
  return {.name = name,
          .section = Section::lane,
          .summary = "logits to full-size run-length masks",
          .reads = {&mask_logits},
          .writes = {&masks},
          .uses = {},
          .device = {.downloads = 1, .waits = 1}};
}

Postprocess::Postprocess(const Options& options, const StageContext& context) : options_(options), context_(context) {}

void Postprocess::run(Batch& batch) {
  // Shared with the targets: if outline() throws, a later wait may still fill it.
  const auto outlined = std::make_shared<std::vector<std::vector<OutlinedMask>>>(batch.frames.size());
  // One entry for each decoder call, because a call packs objects of several pictures.
  std::vector<MaskCall> calls;
  std::map<const std::vector<Tensor>*, std::size_t> known;
  for (std::size_t slot = 0; slot < batch.frames.size(); ++slot) {
    const Frame& frame = *batch.frames[slot];
    if (frame.failed()) continue;
    const PictureLogits& logits = frame.columns.get(mask_logits);
    // To its full size before the targets point into it.
    (*outlined)[slot].resize(logits.objects.size());
    for (std::size_t i = 0; i < logits.objects.size(); ++i) {
      const MaskLogits& object = logits.objects[i];
      const auto [call, is_new] = known.emplace(object.outputs.get(), calls.size());
      if (is_new) calls.push_back({object.outputs->front(), object.outputs->back(), {}});
      calls[call->second].targets.push_back({object.row, logits.geometry, {outlined, &(*outlined)[slot][i]}});
    }
  }
  outline(*context_.device, calls, static_cast<float>(options_.mask_threshold));
  // The masks of all calls come down together, so one wait is enough here.
  context_.device->wait();
  for (std::size_t slot = 0; slot < batch.frames.size(); ++slot) {
    if (!batch.frames[slot]->failed()) take(*batch.frames[slot], std::move((*outlined)[slot]));
  }
}

void Postprocess::take(Frame& frame, std::vector<OutlinedMask> outlined) {
  std::vector<Mask> result;
  result.reserve(outlined.size());
  for (std::size_t i = 0; i < outlined.size(); ++i) {
    if (!outlined[i].fault.empty()) {
      // The decoder's output is at fault, so the failure counts for the stage that called it.
      return frame.fail("segment", Reason::non_finite, "object " + std::to_string(i) + ": " + outlined[i].fault);
    }
    const std::int64_t area = run_area(outlined[i].counts);
    result.push_back(
        {std::move(outlined[i].counts), frame.info.width, frame.info.height, area, outlined[i].predicted_iou});
  }
  frame.columns.set(masks, std::move(result));
}

template StageEntry stage_entry<Postprocess>();

}  // namespace millrace
