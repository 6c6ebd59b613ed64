#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "gpu/operation.hpp"

namespace millrace {

/// A call of the driver that failed, or a kernel that did: the device is of no more use to this process. The message
/// names the call, the error and what it says.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Memory of a device as its driver sees it: what other programs use is not free.
struct DeviceMemory {
  std::int64_t free_bytes = 0, total_bytes = 0;
};

/// A queue of copies and operations that a device works off in order, while the host goes on. None of these functions
/// waits but wait(). It knows no operation: what one is made of stands in its row.
///
/// CudaStream is a GPU, HostStream the CPU, which does everything when it is asked for. FakeStream runs the bodies of
/// the kernels on the host, all of them in wait(); SimulatedStream computes nothing, and that takes a GPU's time.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;

  /// Ordinal of the device, as tensors have it.
  [[nodiscard]] virtual int device() const = 0;
  /// Whether its memory is the host's, and all is done when it is asked for: then nothing need be brought anywhere.
  [[nodiscard]] virtual bool on_host() const { return false; }
  /// The CUDA stream, for LibTorch; null where there is none.
  [[nodiscard]] virtual void* native() const { return nullptr; }

  /// Uninitialised device memory, aligned to 256 bytes on GPUs; at least one byte is asked for. When the last owner
  /// lets go it is free for what is asked for afterwards. Throws std::bad_alloc.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// Host memory that copies run to and from at full speed, and that kernels may write to; from any thread. Not to be
  /// let go before the wait() that follows its last use.
  virtual std::shared_ptr<void> allocate_mapped(std::size_t bytes) = 0;

  /// Gives back what is kept of allocate() for later.
  virtual void trim() {}
  /// Others give back what they keep, before allocate() fails.
  void when_short(std::function<void()> release) { release_ = std::move(release); }
  /// Nothing where memory is that of the host.
  [[nodiscard]] virtual std::optional<DeviceMemory> memory() const { return std::nullopt; }

  virtual void upload(const void* host, void* device, std::size_t bytes) = 0;
  virtual void download(const void* device, void* host, std::size_t bytes) = 0;
  virtual void copy(const void* from, void* to, std::size_t bytes) = 0;
  virtual void zero(void* device, std::size_t bytes) = 0;
  /// Writes a few kilobytes that are read at once: they travel as arguments of kernels, not as a copy.
  virtual void store(const void* host, void* device, std::size_t bytes) = 0;

  /// One job of an operation, in its turn. Pointers of the job are to memory of allocate(), or of allocate_mapped()
  /// where little is written.
  template <class Job>
  void run(const Operation<Job>& operation, const Job& job) {
    take(std::make_shared<const CallOf<Job>>(operation, job));
  }

  virtual void wait() = 0;

  /// Seconds of the device for what `work` asks for, when all that was asked for before is done; waits. 0: no clock.
  virtual double time(const std::function<void()>& work) {
    work();
    wait();
    return 0;
  }

 protected:
  virtual void take(std::shared_ptr<const OperationCall> call) = 0;

  void give_all_back() {
    trim();
    if (release_) release_();
  }

 private:
  std::function<void()> release_;
};

}  // namespace millrace
