#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace millrace {

/// Reuses blocks of memory that is slow to allocate, such as pinned memory.
/// All blocks together never exceed the highest use so far plus `spare` bytes. The oldest free blocks are freed first.
/// Thread-safe. Blocks keep the pool alive.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  using Allocate = std::function<void*(std::size_t bytes)>;
  using Release = std::function<void(void* block)>;
  static constexpr std::size_t default_spare = std::size_t{256} << 20;

  BlockPool(Allocate allocate, Release release, std::size_t spare = default_spare)
      : allocate_(std::move(allocate)), release_(std::move(release)), spare_(spare) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() { release(free_); }

  /// The size of a block for `bytes`: rounded up, so that blocks fit more often. An eighth more at most, from 4096 on.
  static std::size_t rounded(std::size_t bytes) {
    constexpr std::size_t least = 4096;
    if (bytes <= least) return least;
    const std::size_t step = std::bit_floor(bytes) / 8;
    return (bytes + step - 1) / step * step;
  }

  /// Returns a block of at least `bytes` (rounded()).
  /// Throws the errors of `allocate`; std::bad_alloc only after all free blocks were freed.
  std::shared_ptr<void> take(std::size_t bytes) {
    const std::size_t size = rounded(bytes);
    // Allocated now, because a release must not fail.
    const auto node = std::make_shared<std::list<Block>>(1, Block{size, nullptr});
    void*& block = node->front().memory;
    std::list<Block> surplus;
    {
      const std::lock_guard lock(mutex_);
      used_bytes_ += size;
      max_bytes_ = std::max(max_bytes_, used_bytes_);
      const auto found =
          std::find_if(free_.rbegin(), free_.rend(), [&](const Block& free) { return free.size == size; });
      if (found != free_.rend()) {
        block = found->memory;
        free_bytes_ -= size;
        free_.erase(std::next(found).base());
      } else {
        while (used_bytes_ + free_bytes_ > max_bytes_ + spare_) give_up_oldest(surplus);
      }
    }
    release(surplus);
    if (block == nullptr) block = allocate(size);
    return {block, [pool = shared_from_this(), node, size](void*) {
              const std::lock_guard lock(pool->mutex_);
              pool->free_.splice(pool->free_.end(), *node);
              pool->free_bytes_ += size;
              pool->used_bytes_ -= size;
            }};
  }

 private:
  struct Block {
    std::size_t size;
    void* memory;
  };

  void give_up_oldest(std::list<Block>& surplus) {
    free_bytes_ -= free_.front().size;
    surplus.splice(surplus.end(), free_, free_.begin());
  }

  void release(const std::list<Block>& blocks) const {
    for (const Block& block : blocks) release_(block.memory);
  }

  /// If it fails, the bytes do not count as used any more.
  void* allocate(std::size_t size) {
    try {
      return allocate_or_make_room(size);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      used_bytes_ -= size;
      throw;
    }
  }

  void* allocate_or_make_room(std::size_t size) {
    try {
      return allocate_(size);
    } catch (const std::bad_alloc&) {
      std::list<Block> all;
      {
        const std::lock_guard lock(mutex_);
        if (free_.empty()) throw;
        while (!free_.empty()) give_up_oldest(all);
      }
      release(all);
    }
    return allocate_(size);
  }

  const Allocate allocate_;
  const Release release_;
  const std::size_t spare_;
  std::mutex mutex_;
  std::list<Block> free_;  // the block that was freed last is at the end
  std::size_t free_bytes_ = 0, used_bytes_ = 0, max_bytes_ = 0;
};

}  // namespace millrace
