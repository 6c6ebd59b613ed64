#pragma once

#include "base/tensor.hpp"

namespace millrace {

/// The precision in which a model computes.
/// Boxes that go into a model, and all results that Millrace reads, are f32 in any precision.
enum class Precision {
  fp32,
  tf32,  ///< f32 tensors, products with 10 bits of mantissa; GPUs from compute capability 8.0 on
  bf16,
  fp16,  ///< statistics of norms stay in f32
};

/// The type of a model's pictures, weights and embeddings.
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
