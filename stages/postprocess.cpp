#include "stages/postprocess.hpp"

#include "gpu/finite.hpp"
#include "gpu/outline.hpp"
#include "io/json_line.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {

void write_mask(const std::vector<Mask>& masks, std::size_t index, JsonWriter& json) {
  const Mask& mask = masks[index];
  json.key("rle");
  write_rle(mask.counts, mask.width, mask.height, json);
  json.key("iou").rounded(mask.predicted_iou, 5).key("area").value(mask.area);
}

void Postprocess::Options::visit(OptionVisitor& v) {
  v.option("mask_threshold", mask_threshold, "logit above which a pixel belongs to the mask");
}

StageInfo Postprocess::info(const Options& /*options*/) {
  return {name, Section::lane, "logits to full-size run-length masks", {&mask_logits}, {&masks}, {}};
}

Postprocess::Postprocess(const Options& options, const StageContext& /*context*/) : options_(options) {}

void Postprocess::run(Batch& batch) {
  for (const auto& frame : batch.frames) {
    if (frame->failed()) continue;
    const PictureLogits& logits = frame->columns.get(mask_logits);
    std::vector<Mask> result;
    result.reserve(logits.objects.size());
    std::optional<MaskTracer> tracer;
    try {
      for (const auto& object : logits.objects) {
        const Tensor& rows = object.outputs->front();
        const auto size = static_cast<std::size_t>(rows.shape[1] * rows.shape[2]);
        if (!tracer) {
          tracer.emplace(MaskGeometry{static_cast<int>(rows.shape[2]), static_cast<int>(rows.shape[1]),
                                      logits.input_width, logits.input_height, logits.geometry.resized_width,
                                      logits.geometry.resized_height, frame->info.width, frame->info.height});
        }
        Mask mask;
        mask.counts = tracer->trace(rows.host<const float>().subspan(static_cast<std::size_t>(object.row) * size, size),
                                    static_cast<float>(options_.mask_threshold));
        mask.width = frame->info.width;
        mask.height = frame->info.height;
        mask.area = run_area(mask.counts);
        mask.predicted_iou = object.predicted_iou;
        result.push_back(std::move(mask));
      }
      frame->columns.set(masks, std::move(result));
    } catch (const NonFinite& error) {
      frame->fail("segment", Reason::non_finite, error.what());
    }
  }
}

template StageEntry stage_entry<Postprocess>();

}  // namespace millrace
