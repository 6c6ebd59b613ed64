#include "models/engines/deferred_engine.hpp"

#include <cstring>
#include <string>

#include "gpu/device.hpp"
#include "gpu/streams/fake_stream.hpp"

namespace millrace {

std::vector<Tensor> DeferredEngine::call(std::string_view method, std::span<const Tensor> inputs, Device& device) {
  auto* stream = dynamic_cast<FakeStream*>(device.stream());
  if (stream == nullptr) return engine_->call(method, inputs, device);
  const CallRows rows = package_.method(method).call_of(inputs);
  // As on a GPU, outputs exist at once, but hold garbage until the wait.
  std::vector<Tensor> outputs;
  for (const TensorSpec& spec : outputs_of(package_, method, rows, image_type()))
    outputs.push_back(device.empty(spec.shape, spec.dtype));
  std::vector<Tensor> arguments(inputs.begin(), inputs.end());
  for (Tensor& argument : arguments) argument.device = -1;  // a FakeStream's memory is host memory
  stream->defer([this, method = std::string(method), arguments, outputs, rows] {
    const auto results = engine_->call(method, arguments);
    // Before the copy, which needs results of the promised sizes.
    check_outputs(package_, method, rows, results, image_type());
    for (std::size_t i = 0; i < outputs.size(); ++i) std::memcpy(outputs[i].data, results[i].data, outputs[i].bytes());
  });
  return outputs;
}

}  // namespace millrace
