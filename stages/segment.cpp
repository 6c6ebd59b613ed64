#include "stages/segment.hpp"

#include <algorithm>

#include "gpu/prompts.hpp"
#include "stages/model_call.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {

struct Segment::Prompt {
  int slot = 0;    // of the picture
  int object = 0;  // index in its detections
  Box box;         // in pixels of the segmenter's input
};

struct Segment::Work {
  std::shared_ptr<Engine> engine;
  const ModelInput* input = nullptr;
  std::size_t boxes_a_call = 1;
  std::vector<Tensor> embeddings;  // [C,h,w] of each slot; no data where the picture has no boxes or failed
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

/// [count, ...]: the rows, then zeros.
Tensor stack(Device& device, const std::vector<const Tensor*>& rows, int count) {
  std::vector<std::int64_t> shape = rows.front()->shape;
  shape.insert(shape.begin(), count);
  if (count == 1) {
    Tensor one = *rows.front();
    one.shape = shape;
    return one;
  }
  Tensor all = device.empty(shape, rows.front()->dtype);
  const auto given = static_cast<std::int64_t>(rows.size());
  for (std::int64_t i = 0; i < count; ++i) {
    if (i < given) {
      device.copy(*rows[static_cast<std::size_t>(i)], all.row(i));
    } else {
      device.zero(all.row(i));
    }
  }
  return all;
}

}  // namespace

void Segment::Options::visit(OptionVisitor& v) {
  v.package("model", model, "package folder of the segmenter");
  v.option("box_batch", box_batch, "most boxes a decoder call, at most what the package allows", {1, 4096});
  v.option("pack", pack, "fill decoder calls with boxes of all pictures of the batch");
  v.option("image_batch", image_batch, "most pictures an encoder call, at most what the package allows", {1, 1024});
  v.option("pad", pad, "pad calls to powers of two of boxes and pictures, so that they have few shapes");
}

StageInfo Segment::info(const Options& options) {
  ModelUse model{.option = "model",
                 .folder = options.model,
                 .task = "segment",
                 // The decoder takes embeddings that lie side by side, so there are two of each.
                 .calls = {{.method = encode_method, .rows = options.image_batch, .kept_a_picture = 2},
                           {.method = decode_method, .rows = options.box_batch, .kept_an_object = 1}},
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
  Work work;
  work.engine = model_.engine();
  work.boxes_a_call = static_cast<std::size_t>(model_.maximum(decode_method));
  work.input = &batch.columns.get(model_inputs).at(options_.model);
  work.embeddings.resize(batch.frames.size());
  work.results.resize(batch.frames.size());
  encode_pictures(batch, work);

  for (std::size_t slot = 0; slot < batch.frames.size(); ++slot) {
    const Frame& frame = *batch.frames[slot];
    if (frame.failed()) continue;
    const LetterboxGeometry& geometry = work.input->geometry[slot];
    PictureLogits& result = work.results[slot];
    result.geometry = geometry;
    result.input_width = model_.package().input.width;
    result.input_height = model_.package().input.height;
    const auto& list = frame.columns.get(detections).list;
    result.objects.resize(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Box box{list[i].x0, list[i].y0, list[i].x1, list[i].y1};
      work.prompts.push_back({static_cast<int>(slot), static_cast<int>(i), geometry.to_input(box)});
    }
  }

  for (std::size_t first = 0; first < work.prompts.size();) {
    std::size_t count = std::min(work.boxes_a_call, work.prompts.size() - first);
    if (!options_.pack) {
      const int slot = work.prompts[first].slot;
      std::size_t same = 1;
      while (same < count && work.prompts[first + same].slot == slot) ++same;
      count = same;
    }
    decode_boxes(batch, work, first, count);
    first += count;
  }
  for (std::size_t slot = 0; slot < batch.frames.size(); ++slot) {
    if (!batch.frames[slot]->failed()) batch.frames[slot]->columns.set(mask_logits, std::move(work.results[slot]));
  }
  batch.columns.set(image_embeddings, {options_.model, std::move(work.embeddings)});
}

void Segment::encode_pictures(Batch& batch, Work& work) const {
  Device& device = *context_.device;
  std::vector<int> slots;
  for (std::size_t slot = 0; slot < batch.frames.size(); ++slot) {
    const Frame& frame = *batch.frames[slot];
    if (!frame.failed() && !frame.columns.get(detections).list.empty()) slots.push_back(static_cast<int>(slot));
  }
  const auto chunk = static_cast<std::size_t>(model_.maximum(encode_method));
  for (std::size_t first = 0; first < slots.size(); first += chunk) {
    const std::size_t count = std::min(chunk, slots.size() - first);
    const auto outcomes = call_rows(
        std::span(slots).subspan(first, count),
        [&](std::span<const int> rows, const std::vector<bool>& blank) {
          std::vector<Tensor> pictures;
          for (const int row : rows) {
            Tensor picture = work.input->images.row(slots[first + static_cast<std::size_t>(row)]);
            pictures.push_back(blank[static_cast<std::size_t>(row)] ? zeros_like(device, picture) : std::move(picture));
          }
          std::vector<const Tensor*> pointers;
          for (const auto& picture : pictures) pointers.push_back(&picture);
          return std::vector<Tensor>{
              stack(device, pointers, model_.padded(static_cast<int>(pointers.size()), encode_method))};
        },
        [&](const std::vector<Tensor>& inputs) {
          ++context_.counters[encoder_calls];
          return work.engine->call(encode_method, inputs, device);
        },
        [&] { return model_.limit(encode_method); }, context_.counters);
    for (std::size_t i = 0; i < count; ++i) {
      const auto slot = static_cast<std::size_t>(slots[first + i]);
      Frame& frame = *batch.frames[slot];
      if (outcomes[i].outputs == nullptr) {
        frame.fail(name, Reason::model_failed, outcomes[i].error);
        continue;
      }
      frame.split = frame.split || outcomes[i].split;
      work.embeddings[slot] = outcomes[i].outputs->front().row(outcomes[i].row);
    }
  }
}

void Segment::decode_boxes(Batch& batch, Work& work, std::size_t first, std::size_t count) const {
  Device& device = *context_.device;
  std::vector<int> pictures;
  bool any = false;
  for (std::size_t i = 0; i < count; ++i) {
    pictures.push_back(work.prompts[first + i].slot);
    any = any || !batch.frames[static_cast<std::size_t>(pictures.back())]->failed();
  }
  if (!any) return;
  Tensor nothing;  // the embedding of a blank picture, made when one is needed
  const auto make = [&](std::span<const int> rows, const std::vector<bool>& blank) {
    std::vector<const Tensor*> embeddings;
    std::vector<int> slots;
    const auto total = static_cast<std::size_t>(model_.padded(static_cast<int>(rows.size()), decode_method));
    std::vector<Box> boxes(total);
    std::vector<int> image_index(total);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Prompt& prompt = work.prompts[first + static_cast<std::size_t>(rows[i])];
      const auto slot = static_cast<std::size_t>(prompt.slot);
      // A picture that failed in an earlier call keeps its place too, so that shapes follow from the plan.
      const bool empty = blank[static_cast<std::size_t>(rows[i])] || batch.frames[slot]->failed();
      if (empty && nothing.data == nullptr) nothing = zeros_like(device, work.embeddings[slot]);
      if (slots.empty() || slots.back() != prompt.slot) {
        slots.push_back(prompt.slot);
        embeddings.push_back(empty ? &nothing : &work.embeddings[slot]);
      }
      image_index[i] = static_cast<int>(slots.size()) - 1;
      if (!empty) boxes[i] = prompt.box;
    }
    Prompts prompts = make_prompts(device, boxes, image_index);
    return std::vector<Tensor>{stack(device, embeddings, static_cast<int>(embeddings.size())), std::move(prompts.boxes),
                               std::move(prompts.image_index)};
  };
  const auto call = [&](const std::vector<Tensor>& inputs) {
    ++context_.counters[decoder_calls];
    context_.counters[decoder_slots] += inputs[1].shape[0];
    return work.engine->call(decode_method, inputs, device);
  };
  context_.counters[decoder_boxes] += static_cast<std::int64_t>(count);
  const auto outcomes = call_rows(
      pictures, make, call, [&] { return model_.limit(decode_method); }, context_.counters);
  for (std::size_t i = 0; i < count; ++i) {
    const Prompt& prompt = work.prompts[first + i];
    Frame& frame = *batch.frames[static_cast<std::size_t>(prompt.slot)];
    if (outcomes[i].outputs == nullptr) {
      frame.fail(name, Reason::model_failed, outcomes[i].error);
      continue;
    }
    frame.split = frame.split || outcomes[i].split;
    work.results[static_cast<std::size_t>(prompt.slot)].objects[static_cast<std::size_t>(prompt.object)] = {
        outcomes[i].outputs, outcomes[i].row};
  }
}

template StageEntry stage_entry<Segment>();

}  // namespace millrace
