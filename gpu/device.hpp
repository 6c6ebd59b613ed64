#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <typeindex>
#include <utility>
#include <vector>

#include "base/image.hpp"
#include "base/tensor.hpp"
#include "gpu/device_work.hpp"
#include "gpu/stream.hpp"

namespace millrace {

/// A picture in a device's memory: RGB, 8 bits a channel, rows without padding. The last owner frees it.
struct DeviceImage {
  std::shared_ptr<const std::uint8_t> data;
  int width = 0, height = 0;
};

/// Counts of copies and waits. On the host all stay 0.
struct DeviceCounts {
  std::int64_t uploads = 0;  ///< rasters
  /// Copies to the host: one for the masks of an outline(), one for each call that returns vectors.
  std::int64_t downloads = 0;
  std::int64_t waits = 0;
  std::int64_t overflows = 0;  ///< waits whose masks did not fit, so that a second copy and wait followed

  DeviceCounts operator-(const DeviceCounts& earlier) const {
    return {uploads - earlier.uploads, downloads - earlier.downloads, waits - earlier.waits,
            overflows - earlier.overflows};
  }
  DeviceCounts operator+(const DeviceCounts& other) const {
    return {uploads + other.uploads, downloads + other.downloads, waits + other.waits, overflows + other.overflows};
  }
};

/// Counts of the lines of code that asked for copies and waits, such as "semantic_results.cpp:130".
using CountsByCall = std::map<std::string, DeviceCounts>;

/// Memory, copies and operations (gpu/ops/) of one lane. Calls are asynchronous and run in order on a stream.
/// Results are valid after wait(); do not read them before. The caller may free tensors at once.
///
/// A device belongs to one lane. Only the thread of this lane uses it.
class Device final {
 public:
  using Caller = std::source_location;

  /// The CPU.
  Device();
  explicit Device(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() = default;

  /// Whether the device is the CPU: calls finish before they return, in host memory.
  [[nodiscard]] bool on_host() const { return stream_->on_host(); }

  /// Returns uninitialised device memory. It is free for reuse when its last tensor is gone.
  /// That is safe because the stream runs earlier calls before later ones.
  Tensor empty(std::vector<std::int64_t> shape, DType dtype = DType::f32);
  void zero(const Tensor& tensor) { zero(tensor.data, tensor.bytes()); }
  /// Copies between two tensors of this device. Both have the same number of bytes.
  void copy(const Tensor& from, const Tensor& to) { copy(from.data, to.data, to.bytes()); }

  /// Copies a raster to the device. `keep` owns the host's pixels and is held until the copy is done.
  /// On the host nothing is copied.
  DeviceImage upload(const Image8& raster, std::shared_ptr<const void> keep, Caller caller = Caller::current());

  /// Blocks until all calls are done and their results are delivered.
  void wait(Caller caller = Caller::current());
  /// Waits if calls since the last wait() hold memory or have results. The host can have memory of uploads back then.
  void settle(Caller caller = Caller::current()) {
    if (!kept_.empty() || !at_wait_.empty()) wait(caller);
  }
  /// Waits, and drops the results of all calls since the last wait(). Call it after a batch failed halfway.
  void abandon(Caller caller = Caller::current());

  [[nodiscard]] DeviceCounts counts() const { return counts_; }
  /// The same since the first begin_stage(), by stage.
  [[nodiscard]] const std::map<std::string, CountsByCall>& counts_by_stage() const { return counts_by_stage_; }

  /// From now on, counts operations and copies in `work`, for the stage of the last begin_stage(). Not on the host.
  void count_work(std::shared_ptr<DeviceWork> work) { work_ = std::move(work); }
  void begin_stage(const std::string& name) {
    stage_ = name;
    place_ = 0;
  }

  /// The stream on which engines run models. Null on the host.
  Stream* stream() { return on_host() ? nullptr : stream_.get(); }

  // For operations:

  template <class Job>
  void run(const Operation<Job>& operation, const Job& job) {
    operate(operation.name, operation.units(job), [&] { stream_->run(operation, job); });
  }

  /// Returns uninitialised device memory for `count` elements.
  template <class T>
  std::shared_ptr<T[]> allocate(std::size_t count) {
    return typed<T>(stream_->allocate(std::max<std::size_t>(count, 1) * sizeof(T)));
  }
  /// The same. The device holds the memory until the next wait() ends.
  template <class T>
  T* scratch(std::size_t count) {
    const auto memory = allocate<T>(count);
    keep(memory);
    return memory.get();
  }
  /// Copies a few kilobytes to new device memory. The device holds it until the next wait() ends.
  template <class T>
  T* store(std::span<const T> values) {
    T* const memory = scratch<T>(values.size());
    store(values.data(), memory, values.size_bytes());
    return memory;
  }
  /// The same, into a tensor of this type and number of elements.
  template <class T>
  void store(std::span<const T> values, const Tensor& to) {
    store(values.data(), to.data, to.bytes());
  }
  /// Copies a table to new device memory, once for many calls. The report does not count the copy.
  template <class T>
  std::shared_ptr<const T[]> table(std::vector<T> values) {
    if (on_host()) {
      const auto owner = std::make_shared<const std::vector<T>>(std::move(values));
      return {owner, owner->data()};
    }
    const auto memory = allocate<T>(values.size());
    const auto pinned = mapped<T>(values.size());  // a copy from other memory waits for the device
    std::ranges::copy(values, pinned.get());
    keep(pinned);
    stream_->upload(pinned.get(), memory.get(), values.size() * sizeof(T));
    return memory;
  }
  /// Returns host memory that kernels can write to. The caller keeps it until the next wait.
  template <class T>
  std::shared_ptr<T[]> mapped(std::size_t count) {
    return typed<T>(stream_->allocate_mapped(std::max<std::size_t>(count, 1) * sizeof(T)));
  }
  /// Holds `owner` until the next wait() ends.
  void keep(std::shared_ptr<const void> owner) { kept_.push_back(std::move(owner)); }

  void zero(void* memory, std::size_t bytes) {
    operate("zero", static_cast<double>(bytes), [&] { stream_->zero(memory, bytes); });
  }
  void copy(const void* from, void* to, std::size_t bytes) {
    operate("copy", static_cast<double>(bytes), [&] { stream_->copy(from, to, bytes); });
  }
  /// Copies to memory of mapped(), and counts the copy.
  void download(const void* from, void* to, std::size_t bytes, Caller caller = Caller::current());
  /// Copies rows of an item from memory of mapped() to the device, and counts the copy. Keep `from` until the next wait.
  void upload_rows(const void* from, void* to, std::size_t bytes, Caller caller = Caller::current());

  /// Adds work to the next wait(): `before` (may be empty) starts downloads, `after` delivers their results.
  /// If `after` starts more calls, the same wait() waits for them too.
  void at_wait(std::function<void()> before, std::function<void()> after) {
    at_wait_.push_back({std::move(before), std::move(after)});
  }

  /// State that an operation keeps between calls, one object of each type.
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

  /// A job that the device times.
  struct Timed {
    DeviceWork::Job job;
    std::shared_ptr<const void> from, to;
  };

  void store(const void* host, void* memory, std::size_t bytes) {
    operate("store", 1, [&] { stream_->store(host, memory, bytes); });
  }

  /// Calls `queue`, which queues an operation. `operation` outlives the device.
  template <class Queue>
  void operate(std::string_view operation, double units, const Queue& queue) {
    if (work_ == nullptr) return queue();
    counted({stage_, place_++, operation, units}, queue);
  }
  /// Calls `queue`, which queues a copy between the host and the device.
  template <class Queue>
  void copy_bytes(DeviceWork::Engine engine, std::size_t bytes, const Queue& queue) {
    if (work_ == nullptr) return queue();
    counted({stage_, 0, "", static_cast<double>(bytes), engine}, queue);
  }
  template <class Queue>
  void counted(DeviceWork::Job job, const Queue& queue) {
    if (!work_->ran(job)) return queue();
    auto from = stream_->mark();
    queue();
    if (from != nullptr) timed_.push_back({std::move(job), std::move(from), stream_->mark()});
  }
  void read_times();
  void count(const DeviceCounts& more, Caller caller);

  const std::unique_ptr<Stream> stream_;
  DeviceCounts counts_;
  std::map<std::string, CountsByCall> counts_by_stage_;
  std::shared_ptr<DeviceWork> work_;  // null: not counted
  std::string stage_;
  int place_ = 0;                                  // of the next operation in the stage
  std::vector<Timed> timed_;                       // until the next wait() ends
  std::vector<std::shared_ptr<const void>> kept_;  // until the next wait() ends
  std::vector<AtWait> at_wait_;
  std::map<std::type_index, std::shared_ptr<void>> states_;  // declared after the stream: some states own memory of it
};

}  // namespace millrace
