#include "stages/preprocess.hpp"

#include <algorithm>

#include "stages/decode.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {

StageInfo Preprocess::info(const Options& /*options*/) {
  return {name, Section::lane, "pixels to the models' inputs", {&pixels}, {&detector_input, &segmenter_input}, {}};
}

Preprocess::Preprocess(const Options& /*options*/, const StageContext& context) : context_(context) {}

void Preprocess::run(Batch& batch) {
  const std::string& detector = context_.views[static_cast<std::size_t>(batch.view())].detector;
  if (!detector.empty())
    batch.columns.set(detector_input, make(batch, context_.packages.at(detector)->input, detector_buffer_));
  if (!context_.segmenter.empty()) {
    batch.columns.set(segmenter_input, make(batch, context_.packages.at(context_.segmenter)->input, segmenter_buffer_));
  }
}

ModelInput Preprocess::make(const Batch& batch, const InputSpec& spec, Tensor& buffer) const {
  const std::vector<std::int64_t> shape{static_cast<std::int64_t>(batch.frames.size()), 3, spec.height, spec.width};
  const std::vector<std::int64_t> largest{std::max<std::int64_t>(context_.batch_size, shape[0]), 3, spec.height,
                                          spec.width};
  if (buffer.bytes() < Tensor{nullptr, nullptr, shape}.bytes() || buffer.data == nullptr)
    buffer = Tensor::empty(largest);
  ModelInput input;
  input.images = buffer;
  input.images.shape = shape;
  input.geometry.resize(batch.frames.size());
  const std::size_t row_size = 3 * static_cast<std::size_t>(spec.height) * static_cast<std::size_t>(spec.width);
  for (std::size_t i = 0; i < batch.frames.size(); ++i) {
    const Frame& frame = *batch.frames[i];
    const auto row = input.images.host<float>().subspan(i * row_size, row_size);
    const PixelBuffer* raster = frame.failed() ? nullptr : frame.columns.find(pixels);
    if (raster == nullptr) {
      std::fill(row.begin(), row.end(), 0.0F);
      continue;
    }
    input.geometry[i] = letterbox_geometry(frame.info.width, frame.info.height, spec);
    letterbox_cpu({raster->data.get(), raster->width, raster->height}, input.geometry[i], spec, row.data());
  }
  return input;
}

template StageEntry stage_entry<Preprocess>();

}  // namespace millrace
