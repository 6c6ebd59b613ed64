#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.hpp"

namespace millrace {

struct InputSpec;

/// What a row of a model's call is.
enum class RowKind { picture, box, crop, window };
/// "picture" and "pictures", "box" and "boxes", ...
std::string_view word_of(RowKind kind);
std::string_view words_of(RowKind kind);

/// How large a call is.
struct CallRows {
  std::int64_t pictures = 1;  ///< the symbol B of shapes
  std::int64_t others = 0;    ///< N: rows that are no pictures
};

/// A side of a tensor: a number, or a symbol. B and N follow from the call, H and W from the model's input.
struct Side {
  constexpr Side(std::int64_t fixed) : length(fixed) {}
  constexpr Side(int fixed) : length(fixed) {}
  constexpr Side(char letter) : symbol(letter) {}
  std::int64_t length = 0;
  char symbol = 0;
  bool operator==(const Side&) const = default;
};

/// A tensor as model.yaml declares it.
struct TensorForm {
  std::string name;
  std::vector<Side> shape;
  std::optional<DType> dtype = DType::f32;  ///< none: the type of pictures, which follows from the precision
  bool operator==(const TensorForm&) const = default;
};

/// "boxes f32 [N, 4]", for messages.
std::string describe(const TensorForm& form);

/// One function of a model. The rows of a call are those that its outputs begin with: B or N.
struct Method {
  std::string name;  ///< in the TorchScript file
  std::string part;  ///< for people: "encoder"
  RowKind row = RowKind::picture;
  int maximum = 1;  ///< rows of one call
  std::vector<TensorForm> inputs, outputs;

  [[nodiscard]] bool rows_are_pictures() const { return outputs.front().shape.front() == Side('B'); }
  [[nodiscard]] std::int64_t rows(const CallRows& call) const {
    return rows_are_pictures() ? call.pictures : call.others;
  }
  /// How large the call is that has these inputs.
  [[nodiscard]] CallRows call_of(std::span<const Tensor> arguments) const;
};

/// A tensor of one call; `name` is for messages.
struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;
};

/// These tensors of a call: pictures, and what has their type, are of type `images`.
std::vector<TensorSpec> specs_of(const std::vector<TensorForm>& forms, const InputSpec& input, const CallRows& call,
                                 DType images);

}  // namespace millrace
