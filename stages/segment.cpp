#include "stages/segment.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>

#include "gpu/prompts.hpp"
#include "models/exec_shapes.hpp"
#include "stages/model_call.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {

struct Segment::Prompt {
  int slot = 0;    // of the picture
  int object = 0;  // index in its detections
  Box box;         // in pixels of the segmenter's input
};

struct Segment::Work {
  std::vector<Tensor> embeddings;  // [C,h,w] of each slot; no data where the picture has no boxes or failed
  Tensor together;                 // all embeddings, if calls are padded
  std::vector<int> row;            // of each slot in `together`
  std::vector<Prompt> prompts;
  std::vector<PictureLogits> results;  // of each slot
};

namespace {

constexpr const char* encode_method = "encode";
constexpr const char* decode_method = "decode";

Tensor zeros_like(Device& device, const Tensor& tensor) {
  Tensor zeros = device.empty(tensor.shape, tensor.dtype);
  device.zero(zeros);
  return zeros;
}

/// Whether `second` begins where `first` ends, in the same storage.
bool side_by_side(const Tensor* first, const Tensor* second) {
  return first->storage == second->storage &&
         static_cast<const std::byte*>(first->data) + first->bytes() == second->data;
}

/// The rows as one tensor [count, ...]. Rows of one call lie side by side, and are not copied.
Tensor stack(Device& device, const std::vector<const Tensor*>& rows) {
  std::vector<std::int64_t> shape = rows.front()->shape;
  shape.insert(shape.begin(), static_cast<std::int64_t>(rows.size()));
  if (std::ranges::adjacent_find(rows, std::not_fn(side_by_side)) == rows.end()) {
    Tensor all = *rows.front();
    all.shape = shape;
    return all;
  }
  Tensor all = device.empty(shape, rows.front()->dtype);
  for (std::size_t i = 0; i < rows.size(); ++i) device.copy(*rows[i], all.row(static_cast<std::int64_t>(i)));
  return all;
}

}  // namespace

MaskGeometry mask_geometry(const Package& package, const LetterboxGeometry& picture) {
  const int height = package.numbers("logits")[0], width = package.numbers("logits")[1];
  // The first of two resizings does nothing if the input has the size of the logits.
  if (package.number("resize") == masks_direct)
    return {width, height, width, height, width, height, picture.picture_width, picture.picture_height};
  return {width,
          height,
          package.input.width,
          package.input.height,
          picture.resized_width,
          picture.resized_height,
          picture.picture_width,
          picture.picture_height};
}

void Segment::Options::visit(OptionVisitor& v) {
  v.package("model", model, "package folder of the segmenter");
  v.option("box_batch", box_batch, "maximum boxes in a decoder call, up to the maximum of the package", {1, 4096});
  v.option("pack", pack, "fill decoder calls with boxes from all pictures of the batch");
  v.option("image_batch", image_batch, "maximum pictures in an encoder call, up to the maximum of the package",
           {1, 1024});
  v.option("pad", pad,
           "pad the batch of a call to a power of two, or to a size of the variant, so that the model sees few input "
           "shapes");
  v.on_gpu("box_batch", "160");
  v.on_gpu("image_batch", "16");
  v.on_gpu("pad", "yes");
}

StageInfo Segment::info(const Options& options) {
  ModelUse model{.option = "model",
                 .folder = options.model,
                 .task = "segment",
                 // Embeddings of several encoder calls are copied into one tensor (stack): then there are two of each.
                 .calls = {{.method = encode_method, .rows = options.image_batch, .kept_per_picture = 2},
                           {.method = decode_method,
                            .rows = options.box_batch,
                            .option = options.pack ? "box_batch" : "",
                            .kept_per_object = 1}},
                 .padded = options.pad,
                 .remedy = "add --segmenter PACKAGE, or name a recipe without 'segment' and 'postprocess'",
                 .recipe_without = "detect.yaml"};
  return {.name = name,
          .section = Section::lane,
          .summary = "SAM encoder and decoder with box prompts",
          .reads = {&detections, &model_inputs},
          .writes = {&mask_logits, &image_embeddings},
          .uses = {},
          .counters = {&encoder_calls, &decoder_calls, &decoder_boxes, &decoder_slots},
          .models = {std::move(model)}};
}

Segment::Segment(const Options& options, const StageContext& context)
    : options_(options), context_(context), model_(context.models, info(options).models.front()) {}

void Segment::run(Batch& batch) {
  const auto loaded = model_.engine();  // keeps the model loaded for both methods, even if the cache evicts it
  Work work;
  work.embeddings.resize(batch.frames.size());
  work.row.resize(batch.frames.size());
  work.results.resize(batch.frames.size());
  // First all pictures, then all boxes, so that a decoder call can have boxes of several pictures.
  encode_pictures(batch, work);

  const auto& geometries = batch.columns.get(model_inputs).at(options_.model).geometry;
  for (std::size_t slot = 0; slot < batch.frames.size(); ++slot) {
    const Frame& frame = *batch.frames[slot];
    if (frame.failed()) continue;
    const LetterboxGeometry& geometry = geometries[slot];
    PictureLogits& result = work.results[slot];
    result.geometry = mask_geometry(model_.package(), geometry);
    const auto& list = frame.columns.get(detections).list;
    result.objects.resize(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Box box{list[i].x0, list[i].y0, list[i].x1, list[i].y1};
      // In the order of slots, so the rows of a picture are adjacent, as call_rows() needs it.
      work.prompts.push_back({static_cast<int>(slot), static_cast<int>(i), geometry.to_input(box)});
    }
  }
  decode_boxes(batch, work);
  for (std::size_t slot = 0; slot < batch.frames.size(); ++slot) {
    // Also without objects: `postprocess` needs the field, which is then empty.
    if (!batch.frames[slot]->failed()) batch.frames[slot]->columns.set(mask_logits, std::move(work.results[slot]));
  }
  batch.columns.set(image_embeddings, {options_.model, std::move(work.embeddings)});
}

void Segment::encode_pictures(Batch& batch, Work& work) const {
  std::vector<int> slots;
  for (std::size_t slot = 0; slot < batch.frames.size(); ++slot) {
    const Frame& frame = *batch.frames[slot];
    // Pictures without boxes, often the majority, need no embedding.
    if (!frame.failed() && !frame.columns.get(detections).list.empty()) slots.push_back(static_cast<int>(slot));
  }
  int calls = 0;
  call_rows(batch, context_,
            {.stage = name,
             .model = model_,
             .method = encode_method,
             .calls = encoder_calls,
             .owners = slots,
             .take = [&](std::span<const TakenRow> rows) {
               for (const TakenRow& row : rows) {
                 const int slot = slots[static_cast<std::size_t>(row.row)];
                 // A view that keeps the output of the whole call alive.
                 work.embeddings[static_cast<std::size_t>(slot)] = row.outputs->front().row(row.at);
                 work.row[static_cast<std::size_t>(slot)] = row.at;
                 if (work.together.storage != row.outputs->front().storage) ++calls;
                 work.together = row.outputs->front();
               }
             }});
  if (!options_.pad || calls <= 1) return;
  std::vector<const Tensor*> all;
  for (const int slot : slots) {
    const Tensor& embedding = work.embeddings[static_cast<std::size_t>(slot)];
    if (embedding.data == nullptr) continue;  // its picture has failed
    work.row[static_cast<std::size_t>(slot)] = static_cast<int>(all.size());
    all.push_back(&embedding);
  }
  if (all.empty()) return;
  // As encoder calls are padded. Any picture will do: no box has the index of such a row.
  all.resize(static_cast<std::size_t>(padded_rows(static_cast<int>(all.size()), context_.models.batch_size)),
             all.back());
  work.together = stack(*context_.device, all);
}

void Segment::decode_boxes(Batch& batch, Work& work) const {
  Device& device = *context_.device;
  std::vector<int> owners;
  for (const Prompt& prompt : work.prompts) owners.push_back(prompt.slot);
  Tensor nothing;  // the embedding of a blank picture, made when one is needed
  const auto make = [&](std::span<const CallRow> rows, int count, bool apart) {
    std::vector<const Tensor*> embeddings;
    std::vector<int> slots;
    const auto total = static_cast<std::size_t>(count);
    // Rows of padding keep the empty box and image 0. call_rows() drops their results.
    std::vector<Box> boxes(total);
    std::vector<int> image_index(total);
    // All embeddings of the batch, so that the shape of a call does not depend on the pictures of its boxes. Not if its
    // rows are called apart: a picture without boxes in this call may be to blame.
    const bool together = options_.pad && !apart && std::ranges::none_of(rows, &CallRow::blank);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Prompt& prompt = work.prompts[static_cast<std::size_t>(rows[i].row)];
      const auto slot = static_cast<std::size_t>(prompt.slot);
      // Zeros in place of a failed picture's embedding, so that its values cannot make the call fail again.
      if (rows[i].blank && nothing.data == nullptr) nothing = zeros_like(device, work.embeddings[slot]);
      // Rows of a picture are adjacent, so each embedding is in the call once.
      if (!together && (slots.empty() || slots.back() != prompt.slot)) {
        slots.push_back(prompt.slot);
        embeddings.push_back(rows[i].blank ? &nothing : &work.embeddings[slot]);
      }
      image_index[i] = together ? work.row[slot] : static_cast<int>(slots.size()) - 1;
      if (!rows[i].blank) boxes[i] = prompt.box;
    }
    // Counted here, because only `make` knows the padding.
    context_.counters[decoder_slots] += count;
    Prompts prompts = make_prompts(device, boxes, image_index);
    return std::vector<Tensor>{together ? work.together : stack(device, embeddings), std::move(prompts.boxes),
                               std::move(prompts.image_index)};
  };
  const auto take = [&](std::span<const TakenRow> rows) {
    for (const TakenRow& row : rows) {
      const Prompt& prompt = work.prompts[static_cast<std::size_t>(row.row)];
      work.results[static_cast<std::size_t>(prompt.slot)].objects[static_cast<std::size_t>(prompt.object)] = {
          row.outputs, row.at};
    }
  };
  // Boxes are counted once, also if their call is repeated or split.
  context_.counters[decoder_boxes] += static_cast<std::int64_t>(owners.size());
  call_rows(batch, context_,
            {.stage = name,
             .model = model_,
             .method = decode_method,
             .calls = decoder_calls,
             .owners = owners,
             .pack = options_.pack,
             .make = make,
             .take = take});
}

template StageEntry stage_entry<Segment>();

}  // namespace millrace
