#include "models/engine.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gpu/prompts.hpp"

namespace millrace {
namespace {

constexpr std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "i32";
    case DType::u8:
      return "u8";
  }
  return "?";
}

// Boxes of no size are unlike anything a run sends, so each is the middle half of the input.
Prompts middle_boxes(Device& device, const Package& package, int boxes) {
  const auto width = static_cast<float>(package.input.width), height = static_cast<float>(package.input.height);
  const auto count = static_cast<std::size_t>(boxes);
  return make_prompts(device, std::vector<Box>(count, {width / 4, height / 4, width * 3 / 4, height * 3 / 4}),
                      std::vector<int>(count, 0));
}

}  // namespace

std::string describe(const TensorSpec& spec) {
  return fmt::format("{} {} [{}]", spec.name, dtype_name(spec.dtype), fmt::join(spec.shape, ", "));
}

void check_outputs(const Package& package, std::string_view method, std::int64_t batch, std::int64_t boxes,
                   std::span<const Tensor> outputs, DType images) {
  const auto expected = outputs_of(package, method, batch, boxes, images);
  const auto wrong = [&](const std::string& what) {
    return ModelError(fmt::format("{}: {}: {}; correct model.yaml, or export the model again", package.folder.string(),
                                  method, what));
  };
  if (outputs.size() != expected.size())
    throw wrong(fmt::format("unexpected number of outputs, expected {}, got {}", expected.size(), outputs.size()));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const TensorSpec got{expected[i].name, outputs[i].shape, outputs[i].dtype};
    if (got.dtype != expected[i].dtype)
      throw wrong(
          fmt::format("unexpected type of output {}, expected {}, got {}", i, describe(expected[i]), describe(got)));
    if (got.shape != expected[i].shape)
      throw wrong(
          fmt::format("unexpected shape of output {}, expected {}, got {}", i, describe(expected[i]), describe(got)));
  }
}

std::vector<Tensor> Engine::call(std::string_view method, std::span<const Tensor> inputs) {
  Device host;
  return call(method, inputs, host);
}

std::vector<Tensor> warm_up_inputs(const Engine& engine, const Package& package, std::string_view method, int batch,
                                   int boxes, Device& device) {
  std::vector<Tensor> inputs;
  const auto specs = inputs_of(package, method, batch, boxes, engine.image_type());
  inputs.push_back(device.empty(specs.front().shape, specs.front().dtype));
  device.zero(inputs.front());
  if (specs.size() > 1) {  // of "decode"
    Prompts prompts = middle_boxes(device, package, boxes);
    inputs.push_back(std::move(prompts.boxes));
    inputs.push_back(std::move(prompts.image_index));
  }
  return inputs;
}

void warm_up(Engine& engine, const Package& package, int batch, int boxes, Device& device) {
  if (batch < 1 || batch > package.max_batch)
    throw ModelError(fmt::format("{}: takes 1 to {} pictures a call (max_batch), {} were asked for",
                                 package.folder.string(), package.max_batch, batch));
  if (package.task == Task::segment && (boxes < 1 || boxes > package.max_boxes))
    throw ModelError(fmt::format("{}: takes 1 to {} boxes a call (max_boxes), {} were asked for",
                                 package.folder.string(), package.max_boxes, boxes));
  for (const std::string& method : methods_of(package)) {
    const auto inputs = warm_up_inputs(engine, package, method, batch, boxes, device);
    check_outputs(package, method, batch, boxes, engine.call(method, inputs, device), engine.image_type());
  }
  device.wait();
}

}  // namespace millrace
