#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "base/tensor.hpp"
#include "gpu/device.hpp"
#include "models/package.hpp"

namespace millrace {

/// A model call that failed, or a model that does not do what its package says. The message names package, method and
/// shapes.
struct ModelError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A model call that failed for want of memory: smaller shapes may do.
struct OutOfMemoryError : ModelError {
  using ModelError::ModelError;
};

/// What a model computes in. Boxes go in, and detections, logits and predicted IoU come out, as f32 whatever it is.
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

/// EngineOptions::device of an engine that computes shapes and no values: for tests.
constexpr int shapes_only = -2;

struct EngineOptions {
  int threads = 1;     ///< size of the OpenMP team of each calling thread
  int device = -1;     ///< of CUDA; -1: the CPU
  bool freeze = true;  ///< fold weights into the graph; off only to compare
  Precision precision = Precision::fp32;
};

/// A loaded model. call() may run on several threads at once; each thread is a lane with a team of its own.
class Engine {
 public:
  virtual ~Engine() = default;

  /// Runs a method; T is image_type():
  ///   forward(images T [B, 3, H, W]) -> detections f32, laid out as Package::layout says
  ///   encode(images T [B, 3, H, W]) -> embedding T [B, C, h, w]
  ///   decode(embedding T [B, C, h, w], boxes f32 [N, 4] as x0, y0, x1, y1 in input pixels, image_index i64 [N])
  ///     -> logits f32 [N, rows, columns], predicted IoU f32 [N]; box n is of picture image_index[n]
  /// Inputs lie on `device`, the calling lane's, and so will the outputs, after its next wait(); they are dense and own
  /// their storage. Throws OutOfMemoryError, ModelError, DeviceError.
  virtual std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device& device) = 0;
  /// The same on the host, at once.
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs);

  virtual DType image_type() const { return DType::f32; }

  /// Bytes that this model keeps while it is loaded: weights and constants.
  virtual std::int64_t memory_bytes() const = 0;

  /// Gives back to the device what is kept there for later calls, of all engines.
  virtual void trim() {}
};

/// Loads a package. Throws PackageError or ModelError.
using EngineFactory = std::function<std::shared_ptr<Engine>(const Package&, const EngineOptions&)>;

/// "embedding f32 [1, 256, 64, 64]", for messages.
std::string describe(const TensorSpec& spec);

/// Whether the message of a library's error says that memory ran out: LibTorch's CPU and CUDA allocators, cuBLAS,
/// cuDNN.
bool says_out_of_memory(std::string_view message);

/// Whether it says that the device is of no more use: a kernel that failed, a driver that did. Errors of cuBLAS alone
/// do not; where they come from a lost device, the next wait says so.
bool says_device_failed(std::string_view message);

/// Throws ModelError when `outputs` are not as the package promises for these numbers of pictures and boxes: names the
/// first tensor that differs, what was expected and what came.
void check_outputs(const Package& package, std::string_view method, std::int64_t batch, std::int64_t boxes,
                   std::span<const Tensor> outputs, DType images = DType::f32);

/// Inputs of a method in the shapes of a run: zeros, and boxes in the middle.
std::vector<Tensor> warm_up_inputs(const Engine& engine, const Package& package, std::string_view method, int batch,
                                   int boxes, Device& device);

/// Calls every method once in the shapes of a run, on zeros, checks the outputs and waits; `boxes` only matters to
/// segmenters. Call it on the thread that will run the model: LibTorch makes that thread's team here.
void warm_up(Engine& engine, const Package& package, int batch, int boxes, Device& device);

}  // namespace millrace
