// The gates alone: credits of items and read-ahead, the source's claim on the graph, bytes in order of admission.
#include <doctest/doctest.h>

#include <array>
#include <random>

#include "pipeline/gate.hpp"
#include "tests/pipeline/fake_graph.hpp"

namespace millrace {
namespace {

struct Claimed {
  std::atomic<int> claims{0};
  SteadyClock clock{};
  Meter meter{"gate", 1, clock};
  void open(Gate& gate) {
    gate.open([this] { ++claims; }, [this] { --claims; });
  }
  void wait_until_unclaimed() const {
    while (claims != 0) std::this_thread::yield();
  }
};

TEST_CASE("a source without credits drops its claim, and whoever gives a credit back claims for it") {
  Claimed source;
  Gate gate(2, 2, source.meter);
  source.open(gate);
  CHECK(source.claims == 1);
  const int first = gate.take(true).value();
  const int second = gate.take(true).value();
  CHECK(first != second);
  gate.settle();
  gate.settle();
  std::optional<int> third;
  std::jthread waiting([&] { third = gate.take(true); });
  source.wait_until_unclaimed();
  const std::array places{second};
  gate.give_back(places);
  CHECK(source.claims == 1);  // already when give_back returns, whether the source woke or not
  waiting.join();
  CHECK(third == second);
  gate.finish();
  CHECK(source.claims == 0);
}

TEST_CASE("a lost credit leaves the source without a claim until the gate is closed") {
  Claimed source;
  Gate gate(1, 1, source.meter);
  source.open(gate);
  REQUIRE(gate.take(true));  // never given back
  std::optional<int> second = 0;
  std::jthread waiting([&] { second = gate.take(true); });
  source.wait_until_unclaimed();  // here the graph finishes
  gate.close();
  waiting.join();
  CHECK_FALSE(second);
  gate.finish();
  CHECK(source.claims == 0);
}

TEST_CASE("read-ahead holds the source until bytes were granted") {
  Claimed source;
  Gate gate(10, 2, source.meter);
  source.open(gate);
  REQUIRE(gate.take(true));
  REQUIRE(gate.take(true));
  std::optional<int> third;
  std::jthread waiting([&] { third = gate.take(true); });
  source.wait_until_unclaimed();
  gate.settle();
  waiting.join();
  CHECK(third);
}

TEST_CASE("a stopped gate lets a batch be completed, a closed one nothing") {
  Claimed source;
  Gate gate(10, 10, source.meter);
  source.open(gate);
  CHECK_FALSE(gate.stopped());
  gate.stop();
  CHECK(gate.stopped());
  CHECK_FALSE(gate.take(true));
  CHECK(gate.take(false));
  gate.close();
  CHECK_FALSE(gate.take(false));
}

TEST_CASE("bytes are granted in order of admission, whatever the order of arrival and return") {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    constexpr int messages = 40;
    constexpr std::int64_t budget = 100;
    std::vector<int> passed;
    std::vector<ByteCredit> held;
    std::int64_t in_use = 0;
    const auto gate = std::make_shared<ByteGate<int>>(budget, [&](int message, ByteCredit credit) {
      passed.push_back(message);
      in_use += credit.bytes();
      held.push_back(std::move(credit));
    });
    std::vector<int> arrival(messages);
    for (int i = 0; i < messages; ++i) arrival[static_cast<std::size_t>(i)] = i;
    std::ranges::shuffle(arrival, random);
    for (const int message : arrival) {
      gate->offer(message, message, static_cast<std::int64_t>(random() % (budget + 1)));
      CHECK(in_use <= budget);
      if (held.empty() || random() % 2 == 0) continue;
      auto returned = std::move(held[random() % held.size()]);
      in_use -= returned.bytes();
      returned.release();
      returned.release();  // the second time there is nothing to give back
      CHECK(in_use <= budget);
    }
    while (static_cast<int>(passed.size()) < messages) {  // each round frees all that is held
      auto all = std::exchange(held, {});
      for (auto& credit : all) {
        in_use -= credit.bytes();
        credit.release();
      }
    }
    for (int i = 0; i < messages; ++i) CHECK(passed[static_cast<std::size_t>(i)] == i);
    CHECK(in_use <= budget);
    gate->close();
  }
}

TEST_CASE("a closed gate passes nothing, and credits may outlive it") {
  ByteCredit kept;
  int passed = 0;
  auto gate = std::make_shared<ByteGate<int>>(10, [&](int, ByteCredit credit) {
    ++passed;
    kept = std::move(credit);
  });
  gate->offer(0, 0, 10);
  gate->offer(1, 1, 10);
  CHECK(passed == 1);
  gate->close();
  gate.reset();
  kept.release();
  CHECK(passed == 1);
}

}  // namespace
}  // namespace millrace
