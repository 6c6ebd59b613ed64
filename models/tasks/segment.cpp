#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gpu/device.hpp"
#include "gpu/prompts.hpp"
#include "models/package.hpp"
#include "models/task.hpp"
#include "models/yaml_section.hpp"

namespace millrace {

struct SegmentTask;

namespace {

constexpr int max_boxes = 4096;

void read(YamlSection& root, YamlSection& /*output*/, Package& package) {
  if (package.input.mode == ResizeMode::letterbox && package.input.placement == Placement::centred)
    root.fail("input", "padding must be top_left for a segmenter, since its masks are cut from the top left");
  if (package.input.mode == ResizeMode::centre_crop)
    root.fail("input", "resize cannot be centre_crop for a segmenter, since its input must show the whole picture");
  package.output["max_boxes"] = {root.number("max_boxes", 1, max_boxes)};
  root.refuse("classes", "has no meaning for a segmenter; remove it");
}

std::vector<Method> methods(const Package& package) {
  const auto& embedding = package.numbers("embedding");
  const auto& logits = package.numbers("logits");
  const TensorForm embeddings{"embedding", {'B', embedding[0], embedding[1], embedding[2]}, std::nullopt};
  return {{.name = "encode",
           .part = "encoder",
           .row = RowKind::picture,
           .maximum = package.max_batch,
           .inputs = {picture_inputs()},
           .outputs = {embeddings}},
          {.name = "decode",
           .part = "decoder",
           .row = RowKind::box,
           .maximum = package.number("max_boxes"),
           .inputs = {embeddings, {"boxes", {'N', 4}}, {"image_index", {'N'}, DType::i64}},
           .outputs = {{"logits", {'N', logits[0], logits[1]}}, {"iou", {'N'}}}}};
}

std::string describe_output(const Package& package) {
  return fmt::format("embedding {} a picture, logits {} a box", fmt::join(package.numbers("embedding"), " x "),
                     fmt::join(package.numbers("logits"), " x "));
}

// Each box is the middle half of the input. A run never sends boxes without a size, which zeros would be.
std::vector<Tensor> warm_up_inputs(const Package& package, const Method& method, const CallRows& call, DType images,
                                   Device& device) {
  const auto specs = specs_of(method.inputs, package.input, call, images);
  std::vector<Tensor> inputs{device.empty(specs.front().shape, specs.front().dtype)};
  device.zero(inputs.front());
  // `encode` takes pictures only. The other inputs are those of `decode`.
  if (specs.size() == 1) return inputs;
  const auto width = static_cast<float>(package.input.width), height = static_cast<float>(package.input.height);
  const auto count = static_cast<std::size_t>(call.others);
  Prompts prompts =
      make_prompts(device, std::vector<Box>(count, {width / 4, height / 4, width * 3 / 4, height * 3 / 4}),
                   // All boxes are in the first picture.
                   std::vector<int>(count, 0));
  inputs.push_back(std::move(prompts.boxes));
  inputs.push_back(std::move(prompts.image_index));
  return inputs;
}

}  // namespace

/// A segmenter in the manner of SAM.
/// - `encode` turns pictures into embeddings.
/// - `decode` takes embeddings and boxes. Box n is in picture image_index[n].
///   It returns the logits of a mask and a predicted IoU for each box.
template <>
Task make_task<SegmentTask>() {
  return {.name = "segment",
          .model = "segmenter",
          .method_names = {"encode", "decode"},
          .output = {{.name = "embedding", .count = 3}, {.name = "logits", .count = 2}},
          .native_precision = Precision::bf16,
          .older_precision = Precision::fp16,
          .read = read,
          .methods = methods,
          .describe = describe_output,
          .warm_up_inputs = warm_up_inputs};
}

}  // namespace millrace
