#include "models/engine.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gpu/stream.hpp"

namespace millrace {
std::string describe(const TensorSpec& spec) {
  return fmt::format("{} {} [{}]", spec.name, name_of(spec.dtype), fmt::join(spec.shape, ", "));
}

void check_outputs(const Package& package, std::string_view method, const CallRows& call,
                   std::span<const Tensor> outputs, DType images) {
  const auto expected = outputs_of(package, method, call, images);
  const auto wrong = [&](const std::string& what) {
    return PackageError(fmt::format("{}: {}: {}; correct model.yaml, or export the model again",
                                    package.folder.string(), method, what));
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

CallRows call_of(const Package& package, const Method& method, const MethodRows& rows) {
  CallRows call{1, 0};
  for (const Method& other : package.methods) {
    if (other.rows_are_pictures()) call.pictures = rows.find(other.name)->second;
  }
  const int own = rows.find(method.name)->second;
  (method.rows_are_pictures() ? call.pictures : call.others) = own;
  return call;
}

std::vector<Tensor> warm_up_inputs(const Engine& engine, const Package& package, const Method& method,
                                   const CallRows& call, Device& device) {
  if (package.task->warm_up_inputs != nullptr)
    return package.task->warm_up_inputs(package, method, call, engine.image_type(), device);
  std::vector<Tensor> inputs;
  for (const TensorSpec& spec : specs_of(method.inputs, package.input, call, engine.image_type())) {
    inputs.push_back(device.empty(spec.shape, spec.dtype));
    device.zero(inputs.back());
  }
  return inputs;
}

void warm_up_method(Engine& engine, const Package& package, const Method& method, const MethodRows& rows,
                    Device& device) {
  const CallRows call = call_of(package, method, rows);
  const auto inputs = [&] {
    try {
      return warm_up_inputs(engine, package, method, call, device);
    } catch (const OutOfDeviceMemory&) {
      throw NoMemoryForInputs(
          fmt::format("{}: {}: the device has no memory for the inputs of a call; use smaller models "
                      "or another GPU",
                      package.name, method.name),
          method.name);
    }
  }();
  check_outputs(package, method.name, call, engine.call(method.name, inputs, device), engine.image_type());
}

void warm_up(Engine& engine, const Package& package, const MethodRows& rows, Device& device) {
  // Checks all methods before it calls the first one.
  for (const Method& method : package.methods) {
    const int asked = rows.find(method.name)->second;
    if (asked >= 1 && asked <= method.maximum) continue;
    throw ModelError(fmt::format("{}: {} takes 1 to {} {} per call, but the run needs {}", package.folder.string(),
                                 method.name, method.maximum, words_of(method.row), asked));
  }
  for (const Method& method : package.methods) {
    // Its first call prepares little on the host, and takes as long as that of a picture.
    if (device.on_host() && !engine.row_counts(method.name).empty()) continue;
    warm_up_method(engine, package, method, rows, device);
  }
  // Shapes are known before the wait. Some errors of a device appear only here.
  device.wait();
}

}  // namespace millrace
