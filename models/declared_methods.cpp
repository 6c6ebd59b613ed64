#include "models/declared_methods.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

#include "models/package.hpp"

namespace millrace {
namespace {

const std::vector<std::pair<std::string, RowKind>> kinds{
    {"picture", RowKind::picture}, {"box", RowKind::box}, {"crop", RowKind::crop}, {"window", RowKind::window}};

const std::vector<std::pair<std::string, std::optional<DType>>> dtypes{
    {"image", std::nullopt}, {"f32", DType::f32}, {"i64", DType::i64}, {"i32", DType::i32}, {"u8", DType::u8}};

std::vector<Side> read_shape(YamlSection& section) {
  std::vector<Side> shape;
  for (const std::string& text : section.texts("shape")) {
    std::int64_t length = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    const bool is_number = error == std::errc() && end == text.data() + text.size() && length > 0;
    const bool is_symbol = text == "B" || text == "N" || text == "D" || text == "H" || text == "W";
    if (!is_number && !is_symbol)
      section.fail("shape", fmt::format("expected whole numbers above 0, B, N, D, H or W, got '{}'", text));
    shape.push_back(is_number ? Side(length) : Side(text.front()));
  }
  return shape;
}

std::vector<TensorForm> read_forms(YamlSection section) {
  std::vector<TensorForm> forms;
  for (const std::string& name : section.keys()) {
    YamlSection tensor = section.section(name);
    forms.push_back({name, read_shape(tensor), tensor.choice<std::optional<DType>>("dtype", dtypes)});
    tensor.close();
  }
  return forms;
}

// A model.yaml may declare the sides of the input as H and W, or as numbers.
std::vector<TensorForm> with_numbers(std::vector<TensorForm> forms, const InputSpec& input) {
  for (TensorForm& form : forms) {
    for (Side& side : form.shape) {
      if (side == Side('H')) side = Side(std::int64_t{input.height});
      if (side == Side('W')) side = Side(std::int64_t{input.width});
      if (side == Side('D')) side = Side(std::int64_t{input.depth});
    }
  }
  return forms;
}

std::string list_of(const std::vector<TensorForm>& forms) {
  std::string text;
  for (const TensorForm& form : forms) text += (text.empty() ? "" : ", ") + describe(form);
  return text.empty() ? "none" : text;
}

void compare(YamlSection& section, const std::string& key, const std::vector<TensorForm>& expected,
             const InputSpec& input) {
  const auto declared = read_forms(section.section(key));
  if (with_numbers(declared, input) == with_numbers(expected, input)) return;
  section.fail(key, fmt::format("expected {}, which follows from input and output of this file, got {}",
                                list_of(expected), list_of(declared)));
}

}  // namespace

// Does not close `section`, because it may declare further methods.
void check_methods(YamlSection section, const Package& package) {
  for (const Method& expected : package.methods) {
    YamlSection method = section.section(expected.name);
    const RowKind row = method.choice<RowKind>("row", kinds);
    if (row != expected.row)
      method.fail("row", fmt::format("expected {}, got {}", word_of(expected.row), word_of(row)));
    // 4096 is the highest maximum of all tasks: max_boxes of a segmenter.
    const int maximum = method.number("maximum", 1, 4096);
    if (maximum != expected.maximum)
      method.fail("maximum",
                  fmt::format("is {}, but the rest of this file says {}; make them equal", maximum, expected.maximum));
    compare(method, "inputs", expected.inputs, package.input);
    compare(method, "outputs", expected.outputs, package.input);
    method.close();
  }
}

}  // namespace millrace
