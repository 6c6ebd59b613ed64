#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>

namespace fake_cuda {

/// Device memory: blocks in use, and those that wait in the pool for their next use.
class Memory {
 public:
  /// Null: no room.
  void* take(std::size_t bytes) {
    if (bytes > free()) return nullptr;
    // No memory is taken before it is written, so a GPU can have more than the host.
    void* block =
        ::mmap(nullptr, mapped(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) return nullptr;
    blocks_[address(block)] = bytes;
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    return block;
  }
  /// False: no block starts here.
  bool give(void* block) {
    const auto found = blocks_.find(address(block));
    if (found == blocks_.end()) return false;
    used_ -= found->second;
    ::munmap(block, mapped(found->second));
    blocks_.erase(found);
    return true;
  }

  void* take_from_pool(std::size_t bytes) {
    const auto found = pool_.lower_bound(bytes);
    if (found == pool_.end() || found->first > 2 * bytes + (1 << 20)) return take(bytes);
    void* block = found->second;
    ::mprotect(block, mapped(found->first), PROT_READ | PROT_WRITE);
    pool_.erase(found);
    in_pool_.erase(block);
    return block;
  }
  bool give_to_pool(void* block) {
    const auto found = blocks_.find(address(block));
    if (found == blocks_.end() || !in_pool_.insert(block).second) return false;
    ::mprotect(block, mapped(found->second), PROT_NONE);  // a later use is a crash
    pool_.emplace(found->second, block);
    return true;
  }
  void trim() {
    for (const auto& [bytes, block] : pool_) give(block);
    pool_.clear();
    in_pool_.clear();
  }

  [[nodiscard]] bool contains(const void* pointer) const {
    const auto after = blocks_.upper_bound(address(pointer));
    if (after == blocks_.begin()) return false;
    const auto& [begin, bytes] = *std::prev(after);
    return address(pointer) < begin + bytes;
  }
  [[nodiscard]] std::size_t free() const { return total() - of_others() - used_; }
  [[nodiscard]] std::size_t peak() const { return peak_; }
  static std::size_t total() {
    static const std::size_t bytes = number("FAKE_CUDA_BYTES", std::size_t{140} << 30);
    return bytes;
  }

 private:
  static std::size_t number(const char* variable, std::size_t by_default) {
    const char* text = std::getenv(variable);
    return text == nullptr ? by_default : std::strtoull(text, nullptr, 10);
  }
  /// Memory that another process has.
  static std::size_t of_others() {
    static const std::size_t bytes = std::min(number("FAKE_CUDA_BALLAST", 0), total());
    return bytes;
  }
  static std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
  /// Whole pages, at least one.
  static std::size_t mapped(std::size_t bytes) { return (std::max<std::size_t>(bytes, 1) + 4095) / 4096 * 4096; }

  std::map<std::uintptr_t, std::size_t> blocks_;
  std::multimap<std::size_t, void*> pool_;
  std::set<void*> in_pool_;
  std::size_t used_ = 0, peak_ = 0;
};

}  // namespace fake_cuda
