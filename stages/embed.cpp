#include "stages/embed.hpp"

#include <algorithm>
#include <cmath>

#include "base/half.hpp"
#include "gpu/crop.hpp"
#include "stages/detect.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {
namespace {

constexpr const char* method = "embed";
// Rows of a call for exec_batch = 0: the batch size counts pictures, not objects.
constexpr int objects_a_call = 16;

// The crops of the rows, then zeros up to `count` rows. Blank rows are zeros too.
Tensor crop_rows(Device& device, std::span<const CallRow> rows, std::span<const Crop> crops, const InputSpec& spec,
                 DType type, int count) {
  const Tensor inputs = device.empty({count, 3, spec.height, spec.width}, type);
  // The rows from `first` to before `next`, in the same memory.
  const auto part = [&](std::size_t first, std::size_t next) {
    Tensor some = inputs;
    some.data = inputs.row(static_cast<std::int64_t>(first)).data;
    some.shape[0] = static_cast<std::int64_t>(next - first);
    return some;
  };
  const auto total = static_cast<std::size_t>(count);
  const auto is_blank = [&](std::size_t i) { return i >= rows.size() || rows[i].blank; };
  // Runs of rows, because one crop() fills all its rows with one launch.
  for (std::size_t first = 0, next = 0; first < total; first = next) {
    while (next < total && is_blank(next) == is_blank(first)) ++next;
    if (is_blank(first)) {
      device.zero(part(first, next));
      continue;
    }
    std::vector<Crop> these;
    for (std::size_t i = first; i < next; ++i) these.push_back(crops[static_cast<std::size_t>(rows[i].row)]);
    crop(device, these, spec, part(first, next));
  }
  return inputs;
}

ModelUse use_of(const Embed::Options& options, const std::string& own_name) {
  const bool of_objects = options.of == "objects";
  const int rows = options.exec_batch == 0 && of_objects ? objects_a_call : options.exec_batch;
  return {.option = "model",
          .folder = options.model,
          .task = "embed",
          .calls = {{.method = method, .rows = rows}},
          .padded = options.pad,
          // For objects the stage makes its inputs itself, from crops.
          .of_pictures = !of_objects,
          .one_width = true,
          .remedy = "add --set " + own_name + ".model=PACKAGE, or leave '" + own_name + "' out of the recipe"};
}

}  // namespace

std::vector<float> embedding(const Package& package, std::span<const float> values) {
  std::vector<float> vector(values.begin(), values.end());
  if (package.number("normalised") == 0) return vector;
  double squares = 0;
  for (const float value : vector) squares += static_cast<double>(value) * value;
  if (squares == 0) return vector;  // a zero vector has no direction to keep
  for (float& value : vector) value = static_cast<float>(value / std::sqrt(squares));
  return vector;
}

void Embed::Options::visit(OptionVisitor& v) {
  v.package("model", model, "package folder of the embedder");
  v.option("of", of, "picture: one vector for each picture; objects: one for each object, from the crop of its box");
  v.option("exec_batch", exec_batch,
           "rows in a model call, up to the maximum of the package; 0: the batch of pictures, or 16 objects",
           {0, 1024});
  v.option(
      "pad", pad,
      "pad the batch of a call to a power of two, so that the model sees few input shapes; a variant pads by itself");
  v.on_gpu("pad", "yes");
}

StageInfo Embed::info(const Options& options, const Own& own) {
  if (options.of != "picture" && options.of != "objects")
    throw UsageError(own.name + ".of is '" + options.of + "'; it must be picture or objects");
  const bool of_objects = options.of == "objects";
  StageInfo info{.name = name,
                 .section = Section::lane,
                 .summary = "a vector for each picture or object",
                 .reads = {&model_inputs},
                 .writes = {&own.of_pictures},
                 .uses = {},
                 .counters = {&embedder_calls},
                 .models = {use_of(options, own.name)},
                 .device = {.waits = 1, .downloads_each = &embedder_calls}};
  if (of_objects) {
    // Crops come from the uploaded raster, so no stage uploads it twice.
    info.reads = {&detections, &uploaded};
    info.writes = {&own.of_objects};
  }
  return info;
}

Embed::Embed(const Options& options, const StageContext& context, const Own& own)
    : options_(options), context_(context), own_(own), model_(context.models, use_of(options, own.name)) {}

void Embed::run(Batch& batch) {
  if (options_.of == "objects") return embed_objects(batch);
  const HostRows vectors = call_pictures(batch, context_, model_, own_.name, embedder_calls);
  for (std::size_t slot = 0; slot < batch.frames.size(); ++slot)
    set(*batch.frames[slot], own_.of_pictures, vectors, slot, 1);
}

void Embed::embed_objects(Batch& batch) const {
  const Package& package = model_.package();
  Device& device = *context_.device;
  std::vector<int> owners;
  std::vector<Crop> crops;
  for (std::size_t slot = 0; slot < batch.frames.size(); ++slot) {
    const Frame& frame = *batch.frames[slot];
    if (frame.failed()) continue;
    for (const Detection& object : frame.columns.get(detections).list) {
      owners.push_back(static_cast<int>(slot));
      // Boxes are in picture pixels. The raster may be smaller, by `reduction`.
      crops.push_back({frame.columns.get(uploaded),
                       frame.info.width,
                       frame.info.height,
                       frame.info.reduction,
                       {object.x0, object.y0, object.x1, object.y1}});
    }
  }
  const DType type = context_.models.images ? context_.models.images(package) : DType::f32;
  HostRows vectors(device, owners.size(), package.number("dimensions"));
  call_rows(batch, context_,
            {.stage = own_.name,
             .model = model_,
             .method = method,
             .calls = embedder_calls,
             .owners = owners,
             .make =
                 [&](std::span<const CallRow> rows, int count, bool /*part*/) {
                   return std::vector<Tensor>{crop_rows(device, rows, crops, package.input, type, count)};
                 },
             .take = [&](std::span<const TakenRow> rows) { vectors.take(rows); }});
  device.wait();
  // Rows are in the order of slots. A picture that failed in a call still has its rows, so `first` counts them too.
  std::size_t first = 0;
  for (std::size_t slot = 0; slot < batch.frames.size(); ++slot) {
    const auto count = static_cast<std::size_t>(std::ranges::count(owners, static_cast<int>(slot)));
    set(*batch.frames[slot], own_.of_objects, vectors, first, count);
    first += count;
  }
}

void Embed::set(Frame& frame, const Field<HalfRows>& field, const HostRows& vectors, std::size_t first,
                std::size_t count) const {
  if (frame.failed()) return;
  const Package& package = model_.package();
  HalfRows rows{package.number("dimensions"), {}};
  for (std::size_t i = 0; i < count; ++i) {
    for (const float value : embedding(package, vectors.row(first + i))) {
      if (!(std::abs(value) < 65520)) {  // larger numbers round to infinity in float16; also true for NaN
        // One such object fails the picture: a side column must have a row for each object.
        return frame.fail(own_.name, Reason::non_finite,
                          "a vector has the number " + std::to_string(value) + ", which float16 cannot hold");
      }
      rows.values.push_back(to_f16(value));
    }
  }
  frame.columns.set(field, std::move(rows));
}

template StageEntry stage_entry<Embed>();

}  // namespace millrace
