#include "stages/preprocess.hpp"

#include <algorithm>

#include "gpu/ops/letterbox.hpp"
#include "stages/decode.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {

StageInfo Preprocess::info(const Options& /*options*/) {
  return {
      name, Section::lane, "pixels to the models' inputs", {&pixels}, {&uploaded, &detector_input, &segmenter_input},
      {}};
}

Preprocess::Preprocess(const Options& /*options*/, const StageContext& context) : context_(context) {}

void Preprocess::run(Batch& batch) {
  const std::string& detector = context_.views[static_cast<std::size_t>(batch.view())].detector;
  std::vector<DeviceImage> rasters(batch.frames.size());
  for (std::size_t i = 0; i < batch.frames.size(); ++i) {
    Frame& frame = *batch.frames[i];
    const PixelBuffer* raster = frame.failed() ? nullptr : frame.columns.find(pixels);
    if (raster == nullptr) continue;
    rasters[i] = context_.device->upload({raster->data.get(), raster->width, raster->height}, raster->data);
    frame.columns.set(uploaded, rasters[i]);
  }
  if (!detector.empty())
    batch.columns.set(detector_input, make(batch, rasters, *context_.packages.at(detector), detector_buffer_));
  if (!context_.segmenter.empty()) {
    batch.columns.set(segmenter_input,
                      make(batch, rasters, *context_.packages.at(context_.segmenter), segmenter_buffer_));
  }
}

void Preprocess::trim() {
  detector_buffer_ = {};
  segmenter_buffer_ = {};
}

ModelInput Preprocess::make(const Batch& batch, const std::vector<DeviceImage>& rasters, const Package& package,
                            Tensor& buffer) const {
  const InputSpec& spec = package.input;
  const DType type = package.task == Task::detect ? context_.detector_images : context_.segmenter_images;
  const std::vector<std::int64_t> shape{static_cast<std::int64_t>(batch.frames.size()), 3, spec.height, spec.width};
  if (buffer.data == nullptr || buffer.bytes() < Tensor{nullptr, nullptr, shape, type}.bytes()) {
    buffer = {};  // before there is another
    buffer = context_.device->empty(shape, type);
  }
  ModelInput input;
  input.images = buffer;
  input.images.shape = shape;
  input.geometry.resize(batch.frames.size());
  for (std::size_t i = 0; i < batch.frames.size(); ++i) {
    const Tensor row = input.images.row(static_cast<std::int64_t>(i));
    if (rasters[i].data == nullptr) {
      context_.device->zero(row);
      continue;
    }
    const PictureInfo& info = batch.frames[i]->info;
    input.geometry[i] = letterbox_geometry(info.width, info.height, spec);
    letterbox(*context_.device, rasters[i], input.geometry[i], spec, row);
  }
  return input;
}

template StageEntry stage_entry<Preprocess>();

}  // namespace millrace
