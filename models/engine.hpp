#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.hpp"
#include "gpu/device.hpp"
#include "models/package.hpp"
#include "models/precision.hpp"

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

  /// Runs a method of the package, whose tensors Method describes.
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

/// Throws ModelError when `outputs` are not as the package promises for a call of so many rows: names the first tensor
/// that differs, what was expected and what came.
void check_outputs(const Package& package, std::string_view method, const CallRows& call,
                   std::span<const Tensor> outputs, DType images = DType::f32);

/// Rows of a call of each method, by its name.
using MethodRows = std::map<std::string, int, std::less<>>;

/// How large a call of `method` is: rows that are no pictures belong to as many pictures as the package's other methods
/// are called with.
CallRows call_of(const Package& package, const Method& method, const MethodRows& rows);

/// Inputs of a method in the shapes of a run.
std::vector<Tensor> warm_up_inputs(const Engine& engine, const Package& package, const Method& method,
                                   const CallRows& call, Device& device);

/// Calls every method once with so many rows, checks the outputs and waits. Call it on the thread that will run the
/// model: LibTorch makes that thread's team here.
void warm_up(Engine& engine, const Package& package, const MethodRows& rows, Device& device);

}  // namespace millrace
