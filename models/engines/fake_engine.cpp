#include "models/engines/fake_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace millrace {
namespace {

ScriptedFault parse_fault(std::string_view part) {
  const std::size_t at = part.find('@');
  const std::string_view name = part.substr(0, at);
  const std::string_view number = at == std::string_view::npos ? "" : part.substr(at + 1);
  ScriptedFault fault;
  if (name == "oom") {
    fault.kind = ScriptedFault::Kind::oom;
  } else if (name == "nan") {
    fault.kind = ScriptedFault::Kind::nan;
  } else if (name == "throw") {
    fault.kind = ScriptedFault::Kind::throws;
  } else if (name == "shape") {
    fault.kind = ScriptedFault::Kind::shape;
  } else {
    throw std::invalid_argument(fmt::format("'{}' is not a fault; expected oom@N, nan@N, throw@N or shape@N", part));
  }
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), fault.call);
  if (error != std::errc() || end != number.data() + number.size() || fault.call < 1)
    throw std::invalid_argument(fmt::format("'{}': expected the number of a call, from 1, after the @", part));
  return fault;
}

// A test may keep the tensor that its function returned, so the fault goes into a copy.
Tensor copy_of(const Tensor& tensor) {
  Tensor copy = Tensor::empty(tensor.shape, tensor.dtype);
  std::memcpy(copy.data, tensor.data, tensor.bytes());
  return copy;
}

void poison_first_row(Tensor& tensor) {
  if (tensor.dtype != DType::f32 || tensor.elements() == 0) return;
  tensor = copy_of(tensor);
  const auto row = static_cast<std::size_t>(tensor.elements() / tensor.shape.front());
  std::fill_n(static_cast<float*>(tensor.data), row, std::numeric_limits<float>::quiet_NaN());
}

Tensor longer(const Tensor& tensor) {
  auto shape = tensor.shape;
  ++shape.back();
  Tensor result = Tensor::empty(shape, tensor.dtype);
  std::memset(result.data, 0, result.bytes());
  return result;
}

}  // namespace

std::vector<ScriptedFault> parse_faults(std::string_view script) {
  std::vector<ScriptedFault> faults;
  while (!script.empty()) {
    const std::size_t comma = std::min(script.find(','), script.size());
    faults.push_back(parse_fault(script.substr(0, comma)));
    script.remove_prefix(std::min(comma + 1, script.size()));
  }
  return faults;
}

FakeEngine::FakeEngine(Function function, std::string_view faults, std::int64_t memory_bytes)
    : function_(std::move(function)), faults_(parse_faults(faults)), memory_bytes_(memory_bytes) {}

FakeEngine::Function FakeEngine::zeros_of(Package package) {
  return [package = std::move(package)](std::string_view method, std::span<const Tensor> inputs) {
    std::vector<Tensor> outputs;
    for (const TensorSpec& spec : outputs_of(package, method, package.method(method).call_of(inputs))) {
      outputs.push_back(Tensor::empty(spec.shape, spec.dtype));
      std::memset(outputs.back().data, 0, outputs.back().bytes());
    }
    return outputs;
  };
}

std::vector<Tensor> FakeEngine::call(std::string_view method, std::span<const Tensor> inputs, Device& /*device*/) {
  int number = 0;
  {
    const std::lock_guard lock(mutex_);
    // Scripts count the calls of all methods together.
    number = ++all_calls_;
    ++calls_[std::string(method)];
  }
  const auto scripted = [&](ScriptedFault::Kind kind) {
    return std::any_of(faults_.begin(), faults_.end(),
                       [&](const ScriptedFault& fault) { return fault.kind == kind && fault.call == number; });
  };
  if (scripted(ScriptedFault::Kind::oom))
    throw OutOfMemoryError(fmt::format("{}: out of memory, as the script says for call {}", method, number));
  if (scripted(ScriptedFault::Kind::throws))
    throw ModelError(fmt::format("{}: failed, as the script says for call {}", method, number));
  // Without the lock, so that lanes can call at the same time.
  std::vector<Tensor> outputs = function_(method, inputs);
  if (scripted(ScriptedFault::Kind::nan)) std::for_each(outputs.begin(), outputs.end(), poison_first_row);
  if (scripted(ScriptedFault::Kind::shape)) outputs.front() = longer(outputs.front());
  return outputs;
}

int FakeEngine::calls(std::string_view method) const {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(method);
  return found == calls_.end() ? 0 : found->second;
}

}  // namespace millrace
