#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <typeindex>
#include <utility>
#include <vector>

#include "base/image.hpp"
#include "base/tensor.hpp"
#include "gpu/stream.hpp"

namespace millrace {

/// A picture in a device's memory: RGB, 8 bits a channel, rows packed. It lives as long as its last owner.
struct DeviceImage {
  std::shared_ptr<const std::uint8_t> data;
  int width = 0, height = 0;
};

/// What a device was asked for besides computing. On the host there is nothing to bring anywhere.
struct DeviceCounts {
  std::int64_t uploads = 0;  ///< rasters
  std::int64_t downloads =
      0;  ///< copies to the host: one for the masks of a trace(), one for each call that gives vectors
  std::int64_t waits = 0;
  std::int64_t overflows = 0;  ///< waits whose masks had more outline than there was room for, and so took one more
};

/// Where a lane computes: memory, copies and operations (gpu/ops/) on a stream, as a queue. What is asked for is done
/// in order, by the time wait() returns at the latest; until then nothing that is written may be read. Tensors may be
/// let go at once.
///
/// A device belongs to one lane and is used by its thread alone.
class Device final {
 public:
  /// The CPU.
  Device();
  explicit Device(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() = default;

  /// Whether all is done when it is asked for, on the host's memory.
  [[nodiscard]] bool on_host() const { return stream_->on_host(); }

  /// Uninitialised memory of the device. It may be used again as soon as the last tensor on it is gone, since what was
  /// asked for before comes before what is asked for then.
  Tensor empty(std::vector<std::int64_t> shape, DType dtype = DType::f32);
  void zero(const Tensor& tensor) { stream_->zero(tensor.data, tensor.bytes()); }
  /// Between tensors of this device, of the same number of bytes.
  void copy(const Tensor& from, const Tensor& to) { stream_->copy(from.data, to.data, to.bytes()); }

  /// Brings a raster to the device; `keep` keeps the host's until that is done. On the host it stays where it is.
  DeviceImage upload(const Image8& raster, std::shared_ptr<const void> keep);

  /// Blocks until everything that was asked for is done, and what came of it is handed over.
  void wait();
  /// Waits and forgets all that was asked for since the last wait(): nothing of it is handed over. For what failed
  /// halfway.
  void abandon();

  [[nodiscard]] DeviceCounts counts() const { return counts_; }

  /// What this device computes on, for engines; null: the host.
  Stream* stream() { return on_host() ? nullptr : stream_.get(); }

  // For operations:

  template <class Job>
  void run(const Operation<Job>& operation, const Job& job) {
    stream_->run(operation, job);
  }

  /// Uninitialised device memory.
  template <class T>
  std::shared_ptr<T[]> allocate(std::size_t count) {
    return typed<T>(stream_->allocate(std::max<std::size_t>(count, 1) * sizeof(T)));
  }
  /// The same, until the next wait.
  template <class T>
  T* scratch(std::size_t count) {
    const auto memory = allocate<T>(count);
    keep(memory);
    return memory.get();
  }
  /// A few kilobytes on the device, until the next wait.
  template <class T>
  T* store(std::span<const T> values) {
    T* const memory = scratch<T>(values.size());
    stream_->store(values.data(), memory, values.size_bytes());
    return memory;
  }
  /// The same, to a tensor of that type and number of elements.
  template <class T>
  void store(std::span<const T> values, const Tensor& to) {
    stream_->store(values.data(), to.data, to.bytes());
  }
  /// Memory of the host that kernels can write to; to be kept until the next wait.
  template <class T>
  std::shared_ptr<T[]> mapped(std::size_t count) {
    return typed<T>(stream_->allocate_mapped(std::max<std::size_t>(count, 1) * sizeof(T)));
  }
  /// Lets go of it in the next wait.
  void keep(std::shared_ptr<const void> owner) { kept_.push_back(std::move(owner)); }

  void zero(void* memory, std::size_t bytes) { stream_->zero(memory, bytes); }
  void copy(const void* from, void* to, std::size_t bytes) { stream_->copy(from, to, bytes); }
  /// To memory of mapped(). Counted.
  void download(const void* from, void* to, std::size_t bytes);

  /// What the next wait does: `before`, where there is one, asks for what is to come down, `after` hands it over. Where
  /// `after` asks for more, the same wait() waits for that too.
  void at_wait(std::function<void()> before, std::function<void()> after) {
    at_wait_.push_back({std::move(before), std::move(after)});
  }

  /// What an operation keeps from call to call, one of each type.
  template <class State>
  State& state() {
    auto& state = states_[typeid(State)];
    if (state == nullptr) state = std::make_shared<State>();
    return *static_cast<State*>(state.get());
  }

 private:
  struct AtWait {
    std::function<void()> before, after;
  };

  template <class T>
  static std::shared_ptr<T[]> typed(std::shared_ptr<void> memory) {
    auto* data = static_cast<T*>(memory.get());
    return {std::move(memory), data};
  }

  const std::unique_ptr<Stream> stream_;
  DeviceCounts counts_;
  std::vector<std::shared_ptr<const void>> kept_;  // until the next wait
  std::vector<AtWait> at_wait_;
  std::map<std::type_index, std::shared_ptr<void>> states_;  // memory of the stream among them: they go before it
};

}  // namespace millrace
