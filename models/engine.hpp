#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/tensor.hpp"
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

struct EngineOptions {
  int threads = 1;     ///< size of the OpenMP team of each calling thread
  int device = -1;     ///< of CUDA; -1: the CPU
  bool freeze = true;  ///< fold weights into the graph; off only to compare
};

/// A loaded model. call() may run on several threads at once; each thread is a lane with a team of its own.
class Engine {
 public:
  virtual ~Engine() = default;

  /// Runs a method:
  ///   forward(images f32 [B, 3, H, W]) -> detections f32, laid out as Package::layout says
  ///   encode(images f32 [B, 3, H, W]) -> embedding f32 [B, C, h, w]
  ///   decode(embedding f32 [B, C, h, w], boxes f32 [N, 4] as x0, y0, x1, y1 in input pixels, image_index i64 [N])
  ///     -> logits f32 [N, rows, columns], predicted IoU f32 [N]; box n is of picture image_index[n]
  /// Inputs lie on `device`, the calling lane's, and so will the outputs, after its next wait(); they are dense and own
  /// their storage. Throws OutOfMemoryError, ModelError.
  virtual std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device& device) = 0;
  /// The same on the host, at once.
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs);

  /// Bytes that this model keeps while it is loaded: weights and constants.
  virtual std::int64_t memory_bytes() const = 0;
};

/// Loads a package. Throws PackageError or ModelError.
using EngineFactory = std::function<std::shared_ptr<Engine>(const Package&, const EngineOptions&)>;

/// "embedding f32 [1, 256, 64, 64]", for messages.
std::string describe(const TensorSpec& spec);

/// Whether the message of a library's error says that memory ran out: LibTorch's CPU and CUDA allocators, cuBLAS,
/// cuDNN.
bool says_out_of_memory(std::string_view message);

/// Throws ModelError when `outputs` are not as the package promises for these numbers of pictures and boxes: names the
/// first tensor that differs, what was expected and what came.
void check_outputs(const Package& package, std::string_view method, std::int64_t batch, std::int64_t boxes,
                   std::span<const Tensor> outputs);

/// Calls every method once in the shapes of a run, on zeros, checks the outputs and waits; `boxes` only matters to
/// segmenters. Call it on the thread that will run the model: LibTorch makes that thread's team here.
void warm_up(Engine& engine, const Package& package, int batch, int boxes, Device& device);

}  // namespace millrace
