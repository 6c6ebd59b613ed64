#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "gpu/stream.hpp"

namespace millrace {

/// The memory that the streams of a fake device share. Each stream keeps its highest use, like LibTorch.
struct FakeMemory {
  explicit FakeMemory(std::int64_t bytes) : FakeMemory(bytes, bytes) {}
  FakeMemory(std::int64_t bytes, std::int64_t largest) : total_bytes(bytes), largest_block(largest) {}
  const std::int64_t total_bytes;
  const std::int64_t largest_block;  ///< memory in many pieces has no room for a larger one
  std::atomic<std::int64_t> kept_bytes{0};
};

/// Records which host memory counts as pinned: all blocks that have an owner. Thread-safe.
class FakePinned : public std::enable_shared_from_this<FakePinned> {
 public:
  std::shared_ptr<void> take(std::size_t bytes);
  /// Whether these bytes are in one block that has an owner.
  [[nodiscard]] bool holds(const void* memory, std::size_t bytes) const;

 private:
  mutable std::mutex mutex_;
  std::map<const void*, std::size_t, std::less<>> blocks_;
};

/// Counts of a stream's work, counted when the work is done.
struct StreamCounts {
  std::int64_t uploads = 0, downloads = 0, waits = 0;
  bool operator==(const StreamCounts&) const = default;
};

/// A stream without a device. It records all calls and runs them in wait(), on the host, with the bodies of the real
/// kernels. New memory holds garbage, so tests notice reads that come too early.
/// If host memory changes between upload() and wait(), wait() throws std::logic_error.
class FakeStream final : public Stream {
 public:
  /// Without `memory`, memory has no limit.
  /// With `pinned`, copies from or to other host memory throw std::logic_error.
  /// Copies of memory that was freed before they ran throw it too.
  explicit FakeStream(int device = 0, std::shared_ptr<FakeMemory> memory = nullptr,
                      std::shared_ptr<FakePinned> pinned = nullptr)
      : device_(device), queue_(std::make_shared<Queue>(std::move(memory))), pinned_(std::move(pinned)) {}

  ~FakeStream() override;

  [[nodiscard]] int device() const override { return device_; }
  std::shared_ptr<void> allocate(std::size_t bytes) override;
  std::shared_ptr<void> allocate_mapped(std::size_t bytes) override;
  [[nodiscard]] std::optional<DeviceMemory> memory() const override;
  void trim() override;
  void upload(const void* host, void* device, std::size_t bytes) override;
  void download(const void* device, void* host, std::size_t bytes) override;
  void copy(const void* from, void* to, std::size_t bytes) override;
  void zero(void* device, std::size_t bytes) override;
  void store(const void* host, void* device, std::size_t bytes) override;
  /// After an exception, the rest of the work is dropped.
  void wait() override;

  [[nodiscard]] const StreamCounts& counts() const { return counts_; }

  /// Queues `work`, e.g. a model call.
  void defer(std::function<void()> work) { queue_->work.push_back(std::move(work)); }

 protected:
  void take(std::shared_ptr<const OperationCall> call) override {
    defer([call = std::move(call)] { call->body(); });
  }

 private:
  struct Queue {
    explicit Queue(std::shared_ptr<FakeMemory> of_device) : memory(std::move(of_device)) {}
    ~Queue() { trim(); }
    bool take(std::int64_t bytes);  // returns false if too little is free
    void trim();
    std::shared_ptr<FakeMemory> memory;
    std::int64_t used_bytes = 0, kept_bytes = 0;
    std::vector<std::function<void()>> work;
    std::vector<std::shared_ptr<void>> released;  // freed by the host; queued work may still use it
  };
  void check_host(const void* host, std::size_t bytes) const;
  const int device_;
  std::shared_ptr<Queue> queue_;  // memory may outlive the stream
  const std::shared_ptr<FakePinned> pinned_;
  StreamCounts counts_;
};

}  // namespace millrace
