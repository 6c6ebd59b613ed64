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

/// The unit of a model's call: one row is one picture, box, crop or window.
enum class RowKind { picture, box, crop, window };
/// "picture" and "pictures", "box" and "boxes", ...
std::string_view word_of(RowKind kind);
std::string_view words_of(RowKind kind);

/// The size of a call.
struct CallRows {
  std::int64_t pictures = 1;  ///< the symbol B of shapes
  std::int64_t others = 0;    ///< the symbol N: rows that are not pictures
};

/// One dimension of a tensor: a number, or a symbol.
/// The call defines B and N (CallRows). The model's input defines D, H and W.
struct Side {
  constexpr Side(std::int64_t fixed) : length(fixed) {}
  constexpr Side(int fixed) : length(fixed) {}
  constexpr Side(char letter) : symbol(letter) {}
  std::int64_t length = 0;  ///< if `symbol` is 0
  char symbol = 0;          ///< 'B', 'N', 'D', 'H', 'W'; 0: none
  bool operator==(const Side&) const = default;
};

/// A tensor as model.yaml declares it.
struct TensorForm {
  std::string name;
  std::vector<Side> shape;
  std::optional<DType> dtype = DType::f32;  ///< none: image_type() of the run's precision
  bool operator==(const TensorForm&) const = default;
};

/// "boxes f32 [N, 4]", for messages.
std::string describe(const TensorForm& form);

/// One function of a model. The first dimension of its outputs, B or N, counts the rows of a call.
struct Method {
  std::string name;  ///< in the TorchScript file
  std::string part;  ///< for people: "encoder"
  RowKind row = RowKind::picture;
  int maximum = 1;  ///< of rows in one call
  std::vector<TensorForm> inputs, outputs;

  [[nodiscard]] bool rows_are_pictures() const { return outputs.front().shape.front() == Side('B'); }
  [[nodiscard]] std::int64_t rows(const CallRows& call) const {
    return rows_are_pictures() ? call.pictures : call.others;
  }
  /// The size of a call with these inputs, from the first dimension of each.
  [[nodiscard]] CallRows call_of(std::span<const Tensor> arguments) const;
};

/// A tensor of one call; `name` is for messages.
struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;
};

/// The tensors of `forms` in a call of this size. A tensor without a dtype of its own gets `images`.
std::vector<TensorSpec> specs_of(const std::vector<TensorForm>& forms, const InputSpec& input, const CallRows& call,
                                 DType images);

}  // namespace millrace
