#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/tensor.hpp"
#include "gpu/device.hpp"
#include "models/graph_use.hpp"
#include "models/package.hpp"
#include "models/precision.hpp"

namespace millrace {

/// A model call failed. The message names package, method and shapes.
struct ModelError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A model call failed because memory ran out. A call with fewer rows may succeed.
struct OutOfMemoryError : ModelError {
  using ModelError::ModelError;
};

/// A value of EngineOptions::device: the engine computes shapes but no values. For tests.
constexpr int shapes_only = -2;

/// The device has no memory for the inputs of a call of `method`, so no engine was asked.
struct NoMemoryForInputs : OutOfMemoryError {
  NoMemoryForInputs(const std::string& text, std::string called) : OutOfMemoryError(text), method(std::move(called)) {}
  std::string method;
};

struct EngineOptions {
  int threads = 1;     ///< size of the OpenMP team of each calling thread
  int device = -1;     ///< number of the CUDA device; -1: the CPU
  bool freeze = true;  ///< fold weights into the graph; false only in tests that compare
  /// Weights of convolutions in channels-last order; false only to compare. Of TorchScript; variants fix their layout.
  bool channels_last = true;
  std::shared_ptr<GraphUse> graphs{};  ///< on a GPU, repeated calls of one shape are CUDA graphs; null: plain calls
  Precision precision = Precision::fp32;
  int lanes = 1;  ///< maximum number of threads that call it at once
};

/// Memory of a device that LibTorch has taken from the driver, for all engines together.
struct TorchMemory {
  std::int64_t kept_bytes = 0;  ///< in use, or kept for later calls
  std::int64_t peak_bytes = 0;  ///< the most that was in use at once since the last Engine::trim()
};

/// A loaded model. Several threads may run call() at once. Each thread is a lane with its own OpenMP team.
class Engine {
 public:
  virtual ~Engine() = default;

  /// Runs a method of the package. Method describes its tensors.
  /// `device` is that of the calling lane. Inputs and outputs are on it.
  /// Outputs are valid after the next device.wait(). They are dense and own their storage.
  /// Throws OutOfMemoryError, ModelError, DeviceError, or PackageError if a variant does not work.
  virtual std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device& device) = 0;
  /// The same on the host. The outputs are valid on return.
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs);

  /// The row counts of a variant's libraries for this method, smallest first: call() cuts and pads its rows to them.
  /// Empty: a call can have any number of rows.
  virtual std::vector<int> row_counts(std::string_view /*method*/) const { return {}; }

  /// The type of pictures and embeddings (precision.hpp).
  virtual DType image_type() const { return DType::f32; }

  /// Bytes that this model keeps while it is loaded: an estimate, such as the size of its files.
  virtual std::int64_t memory_bytes() const = 0;

  /// Returns the memory that LibTorch keeps for later calls to the device, for all engines together.
  virtual void trim() {}
  /// Zeros from engines that take their memory from the device of the call.
  virtual TorchMemory torch_memory() const { return {}; }
};

/// Loads a package. Throws PackageError, ModelError or PluginError.
using EngineFactory = std::function<std::shared_ptr<Engine>(const Package&, const EngineOptions&)>;

/// "embedding f32 [1, 256, 64, 64]", for messages.
std::string describe(const TensorSpec& spec);

/// Whether an error message of a library means that memory ran out.
/// Knows LibTorch's allocators for CPU and CUDA, cuBLAS and cuDNN.
bool says_out_of_memory(std::string_view message);

/// Whether the message means that the device is lost, because a kernel or the driver failed.
/// Errors of cuBLAS alone do not count: if the device is lost, the next wait() throws too.
bool says_device_failed(std::string_view message);

/// Throws PackageError if `outputs` differ from those that the package promises for a call of this size.
/// The message names the first tensor that differs, with expected and actual shape and type.
void check_outputs(const Package& package, std::string_view method, const CallRows& call,
                   std::span<const Tensor> outputs, DType images = DType::f32);

/// Rows per call of each method, by method name.
using MethodRows = std::map<std::string, int, std::less<>>;

/// The size of a call of `method`. `rows` has an entry for each method of the package.
/// If its rows are not pictures, the number of pictures is that of the package's other method, the encoder.
CallRows call_of(const Package& package, const Method& method, const MethodRows& rows);

/// Inputs of a warm-up call of this size, on `device`: those of Task::warm_up_inputs, or zeros.
std::vector<Tensor> warm_up_inputs(const Engine& engine, const Package& package, const Method& method,
                                   const CallRows& call, Device& device);

/// Calls one method with its `rows` and checks the outputs. Does not wait. Throws PackageError if they are wrong.
void warm_up_method(Engine& engine, const Package& package, const Method& method, const MethodRows& rows,
                    Device& device);

/// Calls every method once with its `rows`, checks the outputs and waits. On the host, it leaves out compiled methods.
/// Call it on the thread that will run the model: LibTorch creates that thread's OpenMP team here.
/// Throws ModelError if `rows` are more than a method takes, and PackageError if outputs differ from the package.
void warm_up(Engine& engine, const Package& package, const MethodRows& rows, Device& device);

}  // namespace millrace
