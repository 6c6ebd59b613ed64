#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace millrace {

/// Keeps blocks of memory that is dear to get, such as pinned memory, for the next who asks. Thread-safe; blocks keep
/// the pool alive.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  using Allocate = std::function<void*(std::size_t bytes)>;
  using Release = std::function<void(void* block)>;

  BlockPool(Allocate allocate, Release release) : allocate_(std::move(allocate)), release_(std::move(release)) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() {
    for (const auto& [size, block] : free_) release_(block);
  }

  /// At least `bytes`; sizes are rounded up, so that blocks fit again. Throws what `allocate` throws.
  std::shared_ptr<void> take(std::size_t bytes) {
    std::size_t size = 4096;
    while (size < bytes) size += size / 2;
    void* block = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = free_.find(size); found != free_.end()) {
        block = found->second;
        free_.erase(found);
      }
    }
    if (block == nullptr) block = allocate_(size);
    return {block, [pool = shared_from_this(), size](void* mine) {
              const std::lock_guard lock(pool->mutex_);
              pool->free_.emplace(size, mine);
            }};
  }

 private:
  const Allocate allocate_;
  const Release release_;
  std::mutex mutex_;
  std::multimap<std::size_t, void*> free_;  // by size
};

}  // namespace millrace
