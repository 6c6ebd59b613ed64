#pragma once

#include "base/tensor.hpp"

namespace millrace {

/// What a model computes in. What goes in beside pictures, and what comes out to us, is f32 whatever it is.
enum class Precision {
  fp32,
  tf32,  ///< tensors of f32, products with 10 bits of mantissa: GPUs from compute capability 8.0 on
  bf16,
  fp16,  ///< with the statistics of norms in f32
};

/// The type of the pictures that a model is given, and of its weights and embeddings.
constexpr DType image_type(Precision precision) {
  switch (precision) {
    case Precision::bf16:
      return DType::bf16;
    case Precision::fp16:
      return DType::f16;
    default:
      return DType::f32;
  }
}

}  // namespace millrace
