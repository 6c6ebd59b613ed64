#include "gpu/host_device.hpp"

#include <algorithm>
#include <cstring>

#include "gpu/finite.hpp"
#include "gpu/nms.hpp"

namespace millrace {
namespace {

FoundBoxes find(const Tensor& output, const BoxTarget& target, const BoxSearch& search) {
  const Candidates all = decode_head(output, target.row, search.head, search.least_score);
  // Class and area are asked before NMS and the cap, so that unwanted boxes take nobody's place.
  Candidates kept;
  for (std::size_t i = 0; i < all.boxes.size(); ++i) {
    const Box box = target.geometry.to_picture(all.boxes[i]);
    const double area = static_cast<double>(box.x1 - box.x0) * static_cast<double>(box.y1 - box.y0);
    const bool has_area = box.x1 > box.x0 && box.y1 > box.y0;  // two negative sides make a positive area
    if (!has_area || area < search.least_area) continue;
    if (!search.wanted.empty() && search.wanted[static_cast<std::size_t>(all.classes[i])] == 0) continue;
    kept.boxes.push_back(all.boxes[i]);
    kept.scores.push_back(all.scores[i]);
    kept.classes.push_back(all.classes[i]);
  }
  const auto order =
      nms_cpu(kept.boxes, kept.scores, kept.classes, search.iou_threshold, search.most_boxes + 1, search.class_aware);
  FoundBoxes found;
  found.more = order.size() > static_cast<std::size_t>(search.most_boxes);
  for (const int index : std::span(order).first(order.size() - (found.more ? 1 : 0))) {
    const auto i = static_cast<std::size_t>(index);
    found.boxes.push_back(target.geometry.to_picture(kept.boxes[i]));
    found.scores.push_back(kept.scores[i]);
    found.classes.push_back(kept.classes[i]);
  }
  return found;
}

}  // namespace

void HostDevice::zero(const Tensor& tensor) { std::memset(tensor.data, 0, tensor.bytes()); }

void HostDevice::copy(const Tensor& from, const Tensor& to) { std::memcpy(to.data, from.data, to.bytes()); }

void HostDevice::letterbox(const Image8& raster, const LetterboxGeometry& geometry, const InputSpec& spec,
                           const Tensor& input) {
  if (input.dtype != DType::f32) throw std::invalid_argument("the host makes inputs of float32");
  letterbox_cpu(raster, geometry, spec, input.host<float>().data());
}

void HostDevice::find_boxes(const Tensor& output, const BoxSearch& search, std::span<const BoxTarget> targets) {
  for (const BoxTarget& target : targets) {
    try {
      *target.found = find(output, target, search);
    } catch (const NonFinite& error) {
      target.found->fault = error.what();
    }
  }
}

Prompts HostDevice::prompts(std::span<const Box> boxes, std::span<const int> image_index) {
  const auto count = static_cast<std::int64_t>(boxes.size());
  Prompts prompts{Tensor::empty({count, 4}), Tensor::empty({count}, DType::i64)};
  static_assert(sizeof(Box) == 4 * sizeof(float));
  std::copy(boxes.begin(), boxes.end(), static_cast<Box*>(prompts.boxes.data));  // there may be none
  std::copy(image_index.begin(), image_index.end(), prompts.image_index.host<std::int64_t>().begin());
  return prompts;
}

void HostDevice::trace(std::span<const MaskCall> calls, float threshold) {
  for (const MaskCall& call : calls) {
    for (const MaskTarget& target : call.targets) trace_one(call, target, threshold);
  }
}

void HostDevice::trace_one(const MaskCall& call, const MaskTarget& target, float threshold) {
  const Tensor logits = call.logits.row(target.row);
  TracedMask& mask = *target.mask;
  mask.predicted_iou = call.predicted_iou.host<const float>()[static_cast<std::size_t>(target.row)];
  if (!all_finite({&mask.predicted_iou, 1})) {
    mask.fault = iou_not_finite;
    return;
  }
  if (!tracer_ || !(tracer_->geometry() == target.geometry)) tracer_.emplace(target.geometry);
  try {
    mask.counts = tracer_->trace(logits.host<const float>(), threshold);
  } catch (const NonFinite& error) {
    mask.fault = error.what();
  }
}

}  // namespace millrace
