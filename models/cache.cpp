#include "models/cache.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/text.hpp"
#include "models/variant.hpp"

namespace millrace {

std::int64_t CacheStatistics::load_ns() const {
  std::vector<Load> sorted = loads;
  std::sort(sorted.begin(), sorted.end(), [](const Load& a, const Load& b) { return a.begin_ns < b.begin_ns; });
  std::int64_t all = 0, until = std::numeric_limits<std::int64_t>::min();
  for (const Load& load : sorted) {
    const std::int64_t end = load.begin_ns + load.wall_ns;
    if (end <= until) continue;
    all += end - std::max(load.begin_ns, until);
    until = end;
  }
  return all;
}

ModelCache::ModelCache(std::int64_t budget_bytes, EngineFactory factory, EngineOptions options, Clock clock)
    : budget_bytes_(budget_bytes), factory_(std::move(factory)), options_(options), clock_(std::move(clock)) {}

std::int64_t ModelCache::steady_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::shared_ptr<Engine> ModelCache::acquire(const Package& package) {
  // Two folders with the same model.yaml have the same files, and so the same engine.
  const std::string& key = package.fingerprint.empty() ? package.folder.string() : package.fingerprint;
  std::promise<std::shared_ptr<Engine>> promise;
  {
    std::unique_lock lock(mutex_);
    const auto entry = touch(key);
    if (entry->engine) {
      ++statistics_.hits;
      return entry->engine;
    }
    if (entry->loading.valid()) {
      ++statistics_.hits;
      // A copy, because the entry disappears if the load fails. Without the lock, because the load needs it to finish.
      const auto loading = entry->loading;
      lock.unlock();
      return loading.get();
    }
    if (auto engine = entry->evicted.lock()) {
      ++statistics_.hits;
      hold(*entry, engine);
      return engine;
    }
    entry->loading = promise.get_future().share();
  }
  return load(package, key, std::move(promise));
}

ModelCache::Entries::iterator ModelCache::touch(const std::string& key) {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
  if (found == entries_.end()) {
    entries_.push_front(Entry{key, {}, {}, {}});
  } else {
    entries_.splice(entries_.begin(), entries_, found);
  }
  return entries_.begin();
}

std::shared_ptr<Engine> ModelCache::load(const Package& package, const std::string& key,
                                         std::promise<std::shared_ptr<Engine>> promise) {
  const std::int64_t start_ns = clock_();
  std::shared_ptr<Engine> engine;
  try {
    if (const std::int64_t bytes = loaded_bytes(package); bytes > budget_bytes_)
      throw PackageError(package.folder.string() + ": its files have " + readable_bytes(static_cast<double>(bytes)) +
                         ", and models.budget is " + readable_bytes(static_cast<double>(budget_bytes_)) +
                         "; set a higher models.budget if the memory suffices, or use a smaller model");
    engine = factory_(package, options_);  // without the lock: it can take seconds
  } catch (...) {
    {
      // Before set_exception(), so that a waiting thread that tries again starts a new load.
      const std::lock_guard lock(mutex_);
      std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; });
    }
    promise.set_exception(std::current_exception());
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    const std::string variant = package.variant == nullptr ? "" : package.variant->id();
    statistics_.loads.push_back({package.name, variant, start_ns, clock_() - start_ns, engine->memory_bytes()});
    // Again the first, because other packages may have been used during the load.
    const auto entry = touch(key);
    entry->loading = {};
    hold(*entry, engine);
  }
  promise.set_value(engine);
  return engine;
}

void ModelCache::hold(Entry& entry, std::shared_ptr<Engine> engine) {
  statistics_.resident_bytes += engine->memory_bytes();
  entry.engine = std::move(engine);
  entry.evicted.reset();
  for (auto oldest = entries_.rbegin(); oldest != entries_.rend() && statistics_.resident_bytes > budget_bytes_;
       ++oldest) {
    if (!oldest->engine || &*oldest == &entry) continue;
    statistics_.resident_bytes -= oldest->engine->memory_bytes();
    ++statistics_.evictions;
    oldest->evicted = oldest->engine;
    oldest->engine.reset();
  }
}

void ModelCache::trim() const {
  std::shared_ptr<Engine> any;
  {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) {
      any = entry.engine != nullptr ? entry.engine : entry.evicted.lock();
      if (any != nullptr) break;
    }
  }
  if (any != nullptr) any->trim();
}

CacheStatistics ModelCache::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace millrace
