#include "models/cache.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <latch>
#include <map>
#include <thread>

#include "models/engines/fake_engine.hpp"
#include "models/variant.hpp"

namespace millrace {
namespace {

Package package_named(const std::string& name) {
  Package package;
  package.name = name;
  package.folder = "/packages/" + name;
  package.fingerprint = "fingerprint of " + name;
  return package;
}

std::vector<Tensor> nothing(std::string_view, std::span<const Tensor>) { return {}; }

/// Makes engines of 100 bytes and counts them by name; throws if `fail` is set.
struct Factory {
  std::map<std::string, int> loads;
  std::mutex mutex;
  std::atomic<bool> fail{false};

  EngineFactory function() {
    return [this](const Package& package, const EngineOptions&) -> std::shared_ptr<Engine> {
      const std::lock_guard lock(mutex);
      ++loads[package.name];
      if (fail) throw ModelError("planned");
      return std::make_shared<FakeEngine>(nothing, "", 100);
    };
  }
};

TEST_CASE("a package is loaded once") {
  Factory factory;
  std::int64_t now_ns = 0;
  ModelCache cache(1000, factory.function(), {}, [&] { return now_ns += 7; });
  const auto first = cache.acquire(package_named("a"));
  CHECK(cache.acquire(package_named("a")) == first);
  Package copy = package_named("a");
  copy.folder = "/elsewhere/a";
  CHECK(cache.acquire(copy) == first);  // same content, another folder
  CHECK(cache.acquire(package_named("b")) != first);
  CHECK(factory.loads == std::map<std::string, int>{{"a", 1}, {"b", 1}});
  const CacheStatistics statistics = cache.statistics();
  CHECK(statistics.hits == 2);
  CHECK(statistics.evictions == 0);
  CHECK(statistics.resident_bytes == 200);
  REQUIRE(statistics.loads.size() == 2);
  CHECK(statistics.loads[0].package == "a");
  CHECK(statistics.loads[0].wall_ns == 7);
  CHECK(statistics.loads[0].bytes == 100);
  CHECK(statistics.load_ns() == 14);
}

TEST_CASE("load_ns counts the time in which several packages load at once only once") {
  const auto load_ns = [](std::vector<std::pair<std::int64_t, std::int64_t>> times) {
    CacheStatistics statistics;
    for (const auto& [begin, end] : times) statistics.loads.push_back({"a", "", begin, end - begin, 1});
    return statistics.load_ns();
  };
  CHECK(load_ns({}) == 0);
  CHECK(load_ns({{5, 9}}) == 4);
  CHECK(load_ns({{20, 30}, {5, 9}}) == 14);           // one after another
  CHECK(load_ns({{5, 9}, {7, 12}}) == 7);             // the second began meanwhile
  CHECK(load_ns({{6, 8}, {5, 12}, {5, 7}}) == 7);     // one inside another
  CHECK(load_ns({{-9, -3}, {-5, 0}, {0, 4}}) == 13);  // any clock
}

TEST_CASE("a budget for two evicts the least recently used of three") {
  Factory factory;
  ModelCache cache(200, factory.function());
  cache.acquire(package_named("a"));
  cache.acquire(package_named("b"));
  cache.acquire(package_named("a"));  // now b is the least recently used
  cache.acquire(package_named("c"));
  CHECK(cache.statistics().evictions == 1);
  CHECK(cache.statistics().resident_bytes == 200);
  cache.acquire(package_named("a"));
  CHECK(factory.loads["a"] == 1);
  cache.acquire(package_named("b"));
  CHECK(factory.loads["b"] == 2);
  CHECK(cache.statistics().evictions == 2);  // c was evicted
  cache.acquire(package_named("a"));
  CHECK(factory.loads["a"] == 1);
}

TEST_CASE("an engine larger than the budget is kept until another is loaded") {
  Factory factory;
  ModelCache cache(50, factory.function());
  const auto a = cache.acquire(package_named("a"));
  CHECK(cache.acquire(package_named("a")) == a);
  CHECK(cache.statistics().evictions == 0);
  cache.acquire(package_named("b"));
  CHECK(cache.statistics().evictions == 1);
  CHECK(cache.statistics().resident_bytes == 100);
}

TEST_CASE("a package whose files are larger than the budget is not loaded, and the message has both numbers") {
  Factory factory;
  ModelCache cache(2'000'000, factory.function());
  Package large = package_named("large");
  large.files = {{"model.ts", "", 1'500'000}, {"classes.f32", "", 600'000}};
  for (int attempt = 0; attempt < 2; ++attempt) {
    CHECK_THROWS_WITH_AS(cache.acquire(large),
                         "/packages/large: its files have 2.1 MB, and models.budget is 2.0 MB; set a higher "
                         "models.budget if the memory suffices, or use a smaller model",
                         PackageError);
  }
  CHECK(factory.loads.empty());
  large.files.pop_back();
  CHECK(cache.acquire(large) != nullptr);
}

TEST_CASE("the budget counts the libraries of a variant, and model.ts only if it is loaded too") {
  Factory factory;
  ModelCache cache(2'000'000, factory.function());
  Package compiled = package_named("compiled");
  compiled.files = {{"model.ts", "", 1'500'000}, {"classes.f32", "", 300'000}};
  compiled.methods.resize(2);
  Variant variant;
  variant.methods["encode"] = {{1, "encode_1.so", "", 800'000}, {4, "encode_4.so", "", 850'000}};
  compiled.variant = std::make_shared<Variant>(variant);
  CHECK_THROWS_WITH_AS(cache.acquire(compiled), doctest::Contains("its files have 3.5 MB, and models.budget is 2.0 MB"),
                       PackageError);
  variant.methods["decode"] = {{16, "decode_16.so", "", 40'000}};
  compiled.variant = std::make_shared<Variant>(variant);
  CHECK(loaded_bytes(compiled) == 1'990'000);
  CHECK(cache.acquire(compiled) != nullptr);
}

TEST_CASE("an evicted engine stays alive while it is used, and returns without a load") {
  Factory factory;
  ModelCache cache(100, factory.function());
  auto a = cache.acquire(package_named("a"));
  const std::weak_ptr<Engine> watch = a;
  cache.acquire(package_named("b"));
  CHECK(cache.statistics().evictions == 1);
  REQUIRE_FALSE(watch.expired());
  CHECK(cache.acquire(package_named("a")) == a);
  CHECK(factory.loads["a"] == 1);
  cache.acquire(package_named("b"));
  a.reset();
  CHECK(watch.expired());
}

TEST_CASE("a failed load is retried at the next call") {
  Factory factory;
  factory.fail = true;
  ModelCache cache(1000, factory.function());
  CHECK_THROWS_AS(cache.acquire(package_named("a")), ModelError);
  factory.fail = false;
  CHECK(cache.acquire(package_named("a")) != nullptr);
  CHECK(factory.loads["a"] == 2);
  CHECK(cache.statistics().loads.size() == 1);
}

TEST_CASE("threads that ask for a package being loaded wait for that load") {
  for (const bool fail : {false, true}) {
    CAPTURE(fail);
    std::latch loading(1), release(1);
    std::atomic<int> loads{0};
    ModelCache cache(1000, [&](const Package&, const EngineOptions&) -> std::shared_ptr<Engine> {
      ++loads;
      loading.count_down();
      release.wait();
      if (fail) throw ModelError("planned");
      return std::make_shared<FakeEngine>(nothing, "", 100);
    });
    std::atomic<int> threw{0};
    std::vector<std::shared_ptr<Engine>> got(4);
    const auto acquire = [&](std::size_t i) {
      try {
        got[i] = cache.acquire(package_named("a"));
      } catch (const ModelError&) {
        ++threw;
      }
    };
    std::vector<std::thread> threads;
    threads.emplace_back(acquire, 0);
    loading.wait();
    for (std::size_t i = 1; i < got.size(); ++i) threads.emplace_back(acquire, i);
    while (cache.statistics().hits < 3) std::this_thread::yield();
    release.count_down();
    for (auto& thread : threads) thread.join();
    CHECK(loads == 1);
    CHECK(threw == (fail ? 4 : 0));
    for (const auto& engine : got) CHECK(engine == got[0]);
  }
}

TEST_CASE("many threads, three packages, a budget for two: the statistics stay right") {
  Factory factory;
  ModelCache cache(200, factory.function());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i)
        cache.acquire(package_named(std::string(1, static_cast<char>('a' + (i * 7 + t) % 3))));
    });
  }
  for (auto& thread : threads) thread.join();
  const CacheStatistics statistics = cache.statistics();
  CHECK(statistics.hits + static_cast<std::int64_t>(statistics.loads.size()) == 2000);
  CHECK(statistics.resident_bytes <= 200);
}

}  // namespace
}  // namespace millrace
