#include "gpu/streams/fake_stream.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace millrace {
namespace {

// As on GPUs (Stream::allocate).
constexpr std::align_val_t alignment{256};
constexpr int garbage = 0xa5;

void* allocate_garbage(std::size_t bytes) {
  void* memory = ::operator new(bytes, alignment);
  std::memset(memory, garbage, bytes);
  return memory;
}

void release(void* memory) { ::operator delete(memory, alignment); }

std::size_t hash_of(const void* memory, std::size_t bytes) {
  return std::hash<std::string_view>()({static_cast<const char*>(memory), bytes});
}

}  // namespace

std::shared_ptr<void> FakeStream::allocate(std::size_t bytes) {
  if (bytes == 0) throw std::invalid_argument("a GPU has no memory of 0 bytes");
  const auto size = static_cast<std::int64_t>(bytes);
  // The order of CudaStream: before an allocation fails, others return the memory that they keep.
  if (!queue_->take(size)) {
    give_all_back();
    if (!queue_->take(size)) throw OutOfDeviceMemory();
  }
  const std::shared_ptr<void> block(allocate_garbage(bytes), release);
  return {block.get(), [queue = queue_, block, size](void*) {
            // Queued work may still use the block, so it lives until the wait. Its bytes are free at once, as on a GPU.
            queue->released.push_back(block);
            queue->used_bytes -= size;
          }};
}

std::optional<DeviceMemory> FakeStream::memory() const {
  const auto& memory = queue_->memory;
  if (memory == nullptr) return std::nullopt;
  return DeviceMemory{memory->total_bytes - memory->kept_bytes, memory->total_bytes};
}

void FakeStream::trim() { queue_->trim(); }

bool FakeStream::Queue::take(std::int64_t bytes) {
  // Memory that this stream has kept is used first. Only the rest comes from the device.
  const std::int64_t more = std::max<std::int64_t>(0, used_bytes + bytes - kept_bytes);
  if (memory != nullptr) {
    if (bytes > memory->largest_block) return false;
    // Adds first and checks afterwards, because other streams take from the same memory at the same time.
    const std::int64_t before = memory->kept_bytes.fetch_add(more);
    if (before + more > memory->total_bytes) {
      memory->kept_bytes -= more;
      return false;
    }
  }
  used_bytes += bytes;
  kept_bytes += more;
  return true;
}

void FakeStream::Queue::trim() {
  if (memory != nullptr) memory->kept_bytes -= kept_bytes - used_bytes;
  kept_bytes = used_bytes;
}

std::shared_ptr<void> FakePinned::take(std::size_t bytes) {
  const std::shared_ptr<void> block(allocate_garbage(bytes), release);
  const std::lock_guard lock(mutex_);
  blocks_[block.get()] = bytes;
  return {block.get(), [pool = shared_from_this(), block](void* mine) {
            const std::lock_guard in_release(pool->mutex_);
            pool->blocks_.erase(mine);
          }};
}

bool FakePinned::holds(const void* memory, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  auto block = blocks_.upper_bound(memory);
  if (block == blocks_.begin()) return false;
  --block;
  const auto before = static_cast<const std::byte*>(memory) - static_cast<const std::byte*>(block->first);
  return static_cast<std::size_t>(before) + bytes <= block->second;
}

std::shared_ptr<void> FakeStream::allocate_mapped(std::size_t bytes) {
  return pinned_ != nullptr ? pinned_->take(bytes) : std::shared_ptr<void>(allocate_garbage(bytes), release);
}

void FakeStream::check_host(const void* host, std::size_t bytes) const {
  if (pinned_ != nullptr && !pinned_->holds(host, bytes))
    throw std::logic_error("a copy uses host memory that is not pinned or was freed");
}

void FakeStream::upload(const void* host, void* device, std::size_t bytes) {
  check_host(host, bytes);
  defer([this, host, device, bytes, hash = hash_of(host, bytes)] {
    // Again at the wait, because the caller may have freed the memory since.
    check_host(host, bytes);
    if (hash_of(host, bytes) != hash) throw std::logic_error("host memory changed between its upload and the wait");
    std::memcpy(device, host, bytes);
    ++counts_.uploads;
  });
}
void FakeStream::download(const void* device, void* host, std::size_t bytes) {
  check_host(host, bytes);
  defer([this, host, device, bytes] {
    check_host(host, bytes);
    std::memcpy(host, device, bytes);
    ++counts_.downloads;
  });
}
void FakeStream::copy(const void* from, void* to, std::size_t bytes) {
  defer([=] { std::memcpy(to, from, bytes); });
}
void FakeStream::zero(void* device, std::size_t bytes) {
  defer([=] { std::memset(device, 0, bytes); });
}
void FakeStream::store(const void* host, void* device, std::size_t bytes) {
  // `host` may be null then.
  if (bytes == 0) return;
  const auto* data = static_cast<const std::byte*>(host);
  defer([device, kept = std::vector<std::byte>(data, data + bytes)] {
    std::copy(kept.begin(), kept.end(), static_cast<std::byte*>(device));
  });
}

// Work owns memory, and memory owns the queue. Clearing the work breaks this circle.
FakeStream::~FakeStream() { queue_->work.clear(); }

void FakeStream::wait() {
  ++counts_.waits;
  // In a scope: the end of the work frees memory into `released`, which the line after the scope clears.
  {
    const auto work = std::exchange(queue_->work, {});  // after a failure, the rest is dropped
    for (const auto& one : work) one();
  }
  queue_->released.clear();
}

}  // namespace millrace
