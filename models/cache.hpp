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

/// What a cache did so far.
struct CacheStatistics {
  struct Load {
    std::string package;  ///< its name
    std::int64_t wall_ns = 0;
    std::int64_t bytes = 0;
  };
  std::vector<Load> loads;  ///< in the order they ended
  std::int64_t hits = 0;    ///< acquisitions that found the engine there or on its way
  std::int64_t evictions = 0;
  std::int64_t resident_bytes = 0;  ///< of the engines that the cache holds now
};

/// Loaded models under a memory budget, shared by the lanes. When a load brings the sum above the budget, the least
/// recently used leave, never the one just loaded. An engine in use lives on with its users, and comes back without a
/// second load when it is asked for while they still hold it; so the budget bounds what is kept for later, not what is
/// in use. Thread-safe.
class ModelCache {
 public:
  /// Nanoseconds of a steady clock.
  using Clock = std::function<std::int64_t()>;

  ModelCache(std::int64_t budget_bytes, EngineFactory factory, EngineOptions options = {},
             Clock clock = steady_clock_ns);

  /// The engine of this package; loads it if it is not there. Threads that ask for a package being loaded wait for that
  /// load. Throws what the factory throws; the next acquisition tries again.
  std::shared_ptr<Engine> acquire(const Package& package);

  CacheStatistics statistics() const;

  static std::int64_t steady_clock_ns();

 private:
  struct Entry {
    std::string key;
    std::shared_future<std::shared_ptr<Engine>> loading;  ///< set while a thread loads it
    std::shared_ptr<Engine> engine;                       ///< set while the cache holds it
    std::weak_ptr<Engine> evicted;                        ///< set when it left; its users may still hold it
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
