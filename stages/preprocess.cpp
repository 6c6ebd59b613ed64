#include "stages/preprocess.hpp"

#include <utility>

#include "gpu/ops/letterbox.hpp"
#include "stages/decode.hpp"
#include "stages/stage_entry.hpp"
#include "stages/stage_models.hpp"

namespace millrace {

StageInfo Preprocess::info(const Options& /*options*/) {
  return {.name = name,
          .section = Section::lane,
          .summary = "pixels to the models' inputs",
          .reads = {&pixels},
          .writes = {&uploaded, &model_inputs},
          .uses = {},
          .device = {.uploads = 1}};
}

Preprocess::Preprocess(const Options& /*options*/, const StageContext& context) : context_(context) {}

void Preprocess::run(Batch& batch) {
  std::vector<DeviceImage> rasters(batch.frames.size());
  for (std::size_t i = 0; i < batch.frames.size(); ++i) {
    Frame& frame = *batch.frames[i];
    const PixelBuffer* raster = frame.failed() ? nullptr : frame.columns.find(pixels);
    if (raster == nullptr) continue;
    rasters[i] = context_.device->upload({raster->data.get(), raster->width, raster->height}, raster->data);
    // The chain frees `uploaded` right after this stage if no later stage crops from it.
    frame.columns.set(uploaded, rasters[i]);
  }
  ModelInputs inputs;
  // A raster goes up once, for all models of the view.
  for (const auto& [folder, buffer] : context_.models.picture_inputs.at(static_cast<std::size_t>(batch.view()))) {
    if (buffers_.size() <= buffer) buffers_.resize(buffer + 1);
    inputs[folder] = make(batch, rasters, context_.models.package(folder), buffers_[buffer]);
  }
  batch.columns.set(model_inputs, std::move(inputs));
}

// The lane calls it when memory ran out. The next run() allocates the buffers again.
void Preprocess::trim() { buffers_.clear(); }

ModelInput Preprocess::make(const Batch& batch, const std::vector<DeviceImage>& rasters, const Package& package,
                            Tensor& buffer) const {
  const InputSpec& spec = package.input;
  const DType type = context_.models.images ? context_.models.images(package) : DType::f32;
  const std::vector<std::int64_t> shape{static_cast<std::int64_t>(batch.frames.size()), 3, spec.height, spec.width};
  if (buffer.data == nullptr || buffer.bytes() < Tensor{nullptr, nullptr, shape, type}.bytes()) {
    buffer = {};  // frees the old memory before the device allocates more
    buffer = context_.device->empty(shape, type);
  }
  ModelInput input;
  // The next batch writes to the same memory. That is safe: the stream runs its kernels after the calls of this batch.
  input.images = buffer;
  input.images.shape = shape;
  input.images.dtype = type;  // the buffer may come from a model of another type
  input.geometry.resize(batch.frames.size());
  std::vector<LetterboxRow> rows;
  for (std::size_t i = 0; i < batch.frames.size(); ++i) {
    const Tensor row = input.images.row(static_cast<std::int64_t>(i));
    if (rasters[i].data == nullptr) {
      // The row has pixels of an earlier batch, or nobody has written it yet.
      context_.device->zero(row);
      continue;
    }
    const PictureInfo& info = batch.frames[i]->info;
    input.geometry[i] = letterbox_geometry(info.width, info.height, spec);
    rows.push_back(letterbox_row(rasters[i], input.geometry[i], spec, row));
  }
  letterbox(*context_.device, std::move(rows));
  return input;
}

template StageEntry stage_entry<Preprocess>();

}  // namespace millrace
