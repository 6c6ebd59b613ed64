#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

namespace millrace {

enum class DType { f32, f16, bf16, i64, i32, u8 };

/// Returns the name of a type, such as "f32".
constexpr std::string_view name_of(DType dtype) {
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

/// Returns the size of one element in bytes.
constexpr std::size_t element_bytes(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::i64:
      return 8;
    case DType::u8:
      return 1;
  }
  return 0;
}

/// A dense row-major array that shares ownership of its storage.
/// Engines take and return it, so that no header of Millrace needs LibTorch.
/// `device` is -1 for host memory, otherwise the CUDA ordinal.
struct Tensor {
  std::shared_ptr<void> storage;
  void* data = nullptr;
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;
  int device = -1;

  std::int64_t elements() const {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * element_bytes(dtype); }

  /// The elements. The tensor must be in host memory and T must be the type that `dtype` names; neither is checked.
  template <class T>
  std::span<T> host() const {
    return {static_cast<T*>(data), static_cast<std::size_t>(elements())};
  }

  /// Returns element `index` of the first dimension, on the same storage.
  Tensor row(std::int64_t index) const {
    Tensor one = *this;
    one.shape.erase(one.shape.begin());
    one.data = static_cast<std::byte*>(data) + static_cast<std::size_t>(index) * one.bytes();
    return one;
  }

  /// Returns a host tensor with uninitialised elements.
  static Tensor empty(std::vector<std::int64_t> shape, DType dtype = DType::f32) {
    Tensor t;
    t.shape = std::move(shape);
    t.dtype = dtype;
    auto buffer = std::make_shared_for_overwrite<std::byte[]>(t.bytes());
    t.data = buffer.get();
    t.storage = std::shared_ptr<void>(buffer, buffer.get());
    return t;
  }
};

}  // namespace millrace
