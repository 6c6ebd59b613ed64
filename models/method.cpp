#include "models/method.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "gpu/letterbox.hpp"
#include "models/engine.hpp"

namespace millrace {
namespace {

// In the order of RowKind.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kinds{
    {{"picture", "pictures"}, {"box", "boxes"}, {"crop", "crops"}, {"window", "windows"}}};

std::int64_t length_of(const Side& side, const InputSpec& input, const CallRows& call) {
  switch (side.symbol) {
    case 'B':
      return call.pictures;
    case 'N':
      return call.others;
    case 'H':
      return input.height;
    case 'W':
      return input.width;
    case 'D':
      return input.depth;
    default:
      return side.length;
  }
}

}  // namespace

std::string_view word_of(RowKind kind) { return kinds[static_cast<std::size_t>(kind)].first; }
std::string_view words_of(RowKind kind) { return kinds[static_cast<std::size_t>(kind)].second; }

std::string describe(const TensorForm& form) {
  std::string text = form.name + " " + (form.dtype ? std::string(name_of(*form.dtype)) : "image") + " [";
  for (const Side& side : form.shape) {
    if (text.back() != '[') text += ", ";
    text += side.symbol != 0 ? std::string(1, side.symbol) : std::to_string(side.length);
  }
  return text + "]";
}

CallRows Method::call_of(std::span<const Tensor> arguments) const {
  CallRows call;
  for (std::size_t i = 0; i < std::min(inputs.size(), arguments.size()); ++i) {
    if (arguments[i].shape.empty()) continue;
    const char symbol = inputs[i].shape.front().symbol;
    if (symbol == 'B') call.pictures = arguments[i].shape.front();
    if (symbol == 'N') call.others = arguments[i].shape.front();
  }
  return call;
}

std::vector<TensorSpec> specs_of(const std::vector<TensorForm>& forms, const InputSpec& input, const CallRows& call,
                                 DType images) {
  std::vector<TensorSpec> specs;
  for (const TensorForm& form : forms) {
    TensorSpec spec{form.name, {}, form.dtype.value_or(images)};
    for (const Side& side : form.shape) spec.shape.push_back(length_of(side, input, call));
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace millrace
