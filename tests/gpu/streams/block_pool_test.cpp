#include "gpu/streams/block_pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace millrace {
namespace {

TEST_CASE("a pool reuses blocks for sizes that fit, and frees them at the end") {
  std::set<void*> living;
  int made = 0;
  {
    const auto pool = std::make_shared<BlockPool>(
        [&](std::size_t bytes) {
          ++made;
          return *living.insert(::operator new(bytes)).first;
        },
        [&](void* block) {
          CHECK(living.erase(block) == 1);
          ::operator delete(block);
        });
    const void* first = pool->take(100'000).get();
    CHECK(pool->take(99'000).get() == first);
    auto held = pool->take(100'000);
    CHECK(held.get() == first);
    CHECK(pool->take(100'000).get() != first);
    CHECK(pool->take(1).get() != first);
    CHECK(made == 3);
  }
  CHECK(living.empty());
}

TEST_CASE("a block has at most an eighth more than its picture needs, and few sizes serve all pictures") {
  CHECK(BlockPool::rounded(std::size_t{1920} * 1080 * 3) == 6'291'456);  // of 6,220,800
  CHECK(BlockPool::rounded(1) == 4096);
  std::set<std::size_t> sizes;
  for (std::size_t bytes = 4096; bytes < 1 << 20; bytes += 7) {
    const std::size_t size = BlockPool::rounded(bytes);
    CAPTURE(bytes);
    REQUIRE(size >= bytes);
    REQUIRE(size - bytes <= bytes / 8);
    sizes.insert(size);
  }
  CHECK(sizes.size() == 8 * 8 + 1);  // eight of each power of two
}

/// A pool that counts its blocks.
struct CountedPool {
  std::map<void*, std::size_t> living;
  std::size_t bytes = 0, max_bytes = std::numeric_limits<std::size_t>::max();
  std::shared_ptr<BlockPool> pool;

  explicit CountedPool(std::size_t spare)
      : pool(std::make_shared<BlockPool>(
            [this](std::size_t size) {
              if (bytes + size > max_bytes) throw std::bad_alloc();
              void* block = ::operator new(size);
              living[block] = size;
              bytes += size;
              return block;
            },
            [this](void* block) {
              bytes -= living.at(block);
              living.erase(block);
              ::operator delete(block);
            },
            spare)) {}
};

TEST_CASE("a pool never holds more than the peak of use plus its spare bytes, for any sizes") {
  for (const std::size_t spare : {std::size_t{0}, std::size_t{1} << 20}) {
    CountedPool counted(spare);
    std::vector<std::pair<std::size_t, std::shared_ptr<void>>> held;
    std::mt19937 random(3);
    std::size_t used = 0, max_rows = 0;
    for (int i = 0; i < 3000; ++i) {
      const std::size_t bytes = (std::size_t{1} << (12 + random() % 8)) + 100;
      used += BlockPool::rounded(bytes);
      max_rows = std::max(max_rows, used);
      held.emplace_back(bytes, counted.pool->take(bytes));
      REQUIRE(counted.bytes >= used);
      REQUIRE(counted.bytes <= max_rows + spare);
      while (held.size() > random() % 9) {
        const auto gone = held.begin() + static_cast<std::ptrdiff_t>(random() % held.size());
        used -= BlockPool::rounded(gone->first);
        held.erase(gone);
      }
    }
    held.clear();
    CHECK(counted.bytes > 0);
    counted.pool.reset();
    CHECK(counted.living.empty());
  }
}

TEST_CASE("a pool frees all unused blocks before it throws for lack of memory") {
  CountedPool counted(1 << 20);
  counted.max_bytes = 20'000;
  auto a = counted.pool->take(4096), b = counted.pool->take(4096), c = counted.pool->take(4096);
  a.reset();
  b.reset();
  CHECK_NOTHROW(static_cast<void>(counted.pool->take(13'000)));  // rounded up to 13,312; c stays
  CHECK(counted.bytes == 4096 + 13'312);
  CHECK_THROWS_AS(static_cast<void>(counted.pool->take(30'000)), std::bad_alloc);
  CHECK(counted.bytes == 4096);
}

}  // namespace
}  // namespace millrace
