#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/tensor.hpp"
#include "gpu/detect_kernel.hpp"
#include "gpu/letterbox_kernel.hpp"
#include "gpu/outline_kernel.hpp"

namespace millrace {

/// Memory of a device as its driver sees it: what other programs use is not free.
struct DeviceMemory {
  std::int64_t free_bytes = 0, total_bytes = 0;
};

/// A queue of copies and kernels that a device works off in order, while the host goes on. None of these functions
/// waits but wait(). The jobs' pointers are to memory of allocate(), or of allocate_mapped() where little is written.
///
/// CudaStream is the real one; FakeStream runs the bodies of the same kernels on the host, all of them in wait().
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;

  /// Ordinal of the device, as tensors have it.
  [[nodiscard]] virtual int device() const = 0;
  /// The CUDA stream, for LibTorch; null where there is none.
  [[nodiscard]] virtual void* native() const { return nullptr; }

  /// Uninitialised device memory, aligned to 256 bytes; at least one byte is asked for. When the last owner lets go it
  /// is free for what is asked for afterwards. Throws std::bad_alloc.
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

  /// One picture into [3, input_height, input_width] of f32, f16 or bf16.
  virtual void letterbox(const LetterboxJob& job, DType type, void* out) = 0;
  virtual void find_boxes(const HeadJob& job) = 0;
  virtual void outline(const OutlineJob& job) = 0;
  /// The last step of outline() again, into another capacity.
  virtual void write_places(const OutlineJob& job) = 0;

  virtual void wait() = 0;

  /// Seconds of the device for what `work` asks for, when all that was asked for before is done; waits. 0: no clock.
  virtual double time(const std::function<void()>& work) {
    work();
    wait();
    return 0;
  }

 protected:
  void give_all_back() {
    trim();
    if (release_) release_();
  }

 private:
  std::function<void()> release_;
};

}  // namespace millrace
