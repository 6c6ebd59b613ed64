#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "models/engine.hpp"

namespace millrace {

/// Counts of a cache since its beginning.
struct CacheStatistics {
  struct Load {
    std::string package;        ///< its name
    std::string variant;        ///< Variant::id(), or empty
    std::int64_t begin_ns = 0;  ///< by the clock of the cache
    std::int64_t wall_ns = 0;
    std::int64_t bytes = 0;
  };
  std::vector<Load> loads;  ///< in the order in which they ended
  std::int64_t hits = 0;    ///< calls of acquire() that found the engine loaded or loading
  std::int64_t evictions = 0;
  std::int64_t resident_bytes = 0;  ///< of the engines that the cache holds now

  /// The time in which something was loading. Lanes can load at the same time.
  [[nodiscard]] std::int64_t load_ns() const;
};

/// Loaded models under a memory budget, shared by the lanes. Thread-safe.
///
/// When a load exceeds the budget, the cache evicts the least recently used engines, never the one just loaded.
/// An evicted engine lives until its last user frees it. Until then, acquire() returns it without a second load.
/// So the budget limits the memory of engines that are kept for later, not of engines in use.
/// A package whose files (loaded_bytes()) are larger than the budget is refused before it loads.
class ModelCache {
 public:
  /// Nanoseconds of a steady clock.
  using Clock = std::function<std::int64_t()>;

  ModelCache(std::int64_t budget_bytes, EngineFactory factory, EngineOptions options = {},
             Clock clock = steady_clock_ns);

  /// The engine of this package; loads it if necessary.
  /// If another thread is loading the package, it waits for that load.
  /// Throws PackageError if the package is larger than the budget.
  /// Throws the factory's errors, also in waiting threads. The next acquire() tries again.
  std::shared_ptr<Engine> acquire(const Package& package);

  /// Returns the memory that LibTorch keeps for later calls to the device. Any engine does that for all (Engine::trim).
  void trim() const;

  CacheStatistics statistics() const;

  static std::int64_t steady_clock_ns();

 private:
  struct Entry {
    std::string key;
    std::shared_future<std::shared_ptr<Engine>> loading;  ///< valid while a thread loads it
    std::shared_ptr<Engine> engine;                       ///< set while the cache holds it
    std::weak_ptr<Engine> evicted;                        ///< set after eviction; users may still hold it
  };
  using Entries = std::list<Entry>;  // most recently used first; iterators stay valid while others move

  Entries::iterator touch(const std::string& key);
  std::shared_ptr<Engine> load(const Package& package, const std::string& key,
                               std::promise<std::shared_ptr<Engine>> promise);
  void hold(Entry& entry, std::shared_ptr<Engine> engine);

  const std::int64_t budget_bytes_;
  const EngineFactory factory_;
  const EngineOptions options_;
  const Clock clock_;
  mutable std::mutex mutex_;
  Entries entries_;
  CacheStatistics statistics_;
};

}  // namespace millrace
