#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>

#include "gpu/operation.hpp"

namespace millrace {

/// A call of the driver or a kernel failed. This process cannot use the device any more.
/// The message names the call and the error, with the driver's text.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Memory of the device ran out. If that of the host runs out, streams throw another std::bad_alloc.
struct OutOfDeviceMemory : std::bad_alloc {
  [[nodiscard]] const char* what() const noexcept override { return "the device has no memory left"; }
};

/// Memory of a device as the driver reports it. Memory of other programs does not count as free.
struct DeviceMemory {
  std::int64_t free_bytes = 0, total_bytes = 0;
};

/// A queue of copies and operations. The device runs them in order while the host continues.
/// Only wait() and time() wait. Streams name no operation: the row of an operation contains all its functions.
///
/// - CudaStream: a GPU.
/// - HostStream: the CPU. It finishes each call before it returns.
/// - FakeStream: runs the kernels' bodies on the host, all of them in wait().
/// - SimulatedStream: computes nothing, and takes as long as a GPU would.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;

  /// Number of the device, as in Tensor::device.
  [[nodiscard]] virtual int device() const = 0;
  /// Whether the device is the CPU: its memory is the host's, and calls finish before they return.
  [[nodiscard]] virtual bool on_host() const { return false; }
  /// The CUDA stream, for LibTorch. Null on other devices.
  [[nodiscard]] virtual void* native() const { return nullptr; }

  /// Returns uninitialised device memory, aligned to 256 bytes on GPUs. `bytes` is at least 1.
  /// When the last owner is gone, later calls can get this memory. Throws OutOfDeviceMemory.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// Returns host memory for copies at full speed (pinned); kernels may write to it. Call it from any thread.
  /// Free the memory only after the wait() that follows its last use.
  virtual std::shared_ptr<void> allocate_mapped(std::size_t bytes) = 0;

  /// Returns free blocks, which allocate() keeps for reuse, to the driver.
  virtual void trim() {}
  /// Sets a function that runs before allocate() fails, so that others return the memory that they keep.
  void when_short(std::function<void()> release) { release_ = std::move(release); }
  /// Memory of the device. Nothing on the host.
  [[nodiscard]] virtual std::optional<DeviceMemory> memory() const { return std::nullopt; }

  virtual void upload(const void* host, void* device, std::size_t bytes) = 0;
  virtual void download(const void* device, void* host, std::size_t bytes) = 0;
  virtual void copy(const void* from, void* to, std::size_t bytes) = 0;
  virtual void zero(void* device, std::size_t bytes) = 0;
  /// Writes a few kilobytes, and reads `host` before it returns.
  /// On a GPU they are arguments of kernels, which is faster than a copy.
  virtual void store(const void* host, void* device, std::size_t bytes) = 0;

  /// Queues one job of an operation. Pointers of the job point to memory of allocate().
  /// Small outputs may be in memory of allocate_mapped().
  template <class Job>
  void run(const Operation<Job>& operation, const Job& job) {
    take(std::make_shared<const CallOf<Job>>(operation, job));
  }

  virtual void wait() = 0;

  /// Returns a moment between the calls before it and those after it. Null: the device has no clock.
  virtual std::shared_ptr<const void> mark() { return nullptr; }
  /// Returns the device's seconds between two marks of this stream. A wait() must have followed both.
  [[nodiscard]] virtual double seconds(const void* /*from*/, const void* /*to*/) const { return 0; }

  /// Runs `work` between two waits, and returns the device's seconds for `work`. 0: the device has no clock.
  /// The device first idles for `idle_s` seconds. If `work` has queued everything by then, the device does not wait
  /// for launches, and the result is the time of the kernels alone.
  double time(const std::function<void()>& work, double idle_s) {
    wait();
    idle(idle_s);
    const auto from = mark();
    work();
    const auto to = mark();
    wait();
    return from == nullptr ? 0 : seconds(from.get(), to.get());
  }

 protected:
  virtual void take(std::shared_ptr<const OperationCall> call) = 0;
  /// Occupies the device before the next call.
  virtual void idle(double /*seconds*/) {}

  void give_all_back() {
    trim();
    if (release_) release_();
  }

 private:
  std::function<void()> release_;
};

}  // namespace millrace
