// Tests of the gates alone: credits of items and read-ahead, the source's claim on the graph, bytes in order of admission.
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
  Trace trace{};
  void open(Gate& gate) {
    gate.open([this] { ++claims; }, [this] { --claims; });
  }
  void wait_until_unclaimed() const {
    while (claims != 0) std::this_thread::yield();
  }
};

TEST_CASE("a source without credits drops its claim, and giving a credit back claims for it") {
  Claimed source;
  Gate gate(2, 2, source.meter, source.trace);
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
  const std::array credits{second};
  gate.give_back(credits);
  CHECK(source.claims == 1);  // when give_back() returns, even if the source has not woken up yet
  waiting.join();
  CHECK(third == second);
  gate.finish();
  CHECK(source.claims == 0);
}

TEST_CASE("a lost credit leaves the source without a claim until the gate is closed") {
  Claimed source;
  Gate gate(1, 1, source.meter, source.trace);
  source.open(gate);
  REQUIRE(gate.take(true));  // this credit is never given back
  std::optional<int> second = 0;
  std::jthread waiting([&] { second = gate.take(true); });
  source.wait_until_unclaimed();  // at this point a graph would end
  gate.close();
  waiting.join();
  CHECK_FALSE(second);
  gate.finish();
  CHECK(source.claims == 0);
}

TEST_CASE("read-ahead holds the source until bytes were granted") {
  Claimed source;
  Gate gate(10, 2, source.meter, source.trace);
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

TEST_CASE("a stopped gate admits the rest of a batch, a closed one admits nothing") {
  Claimed source;
  Gate gate(10, 10, source.meter, source.trace);
  source.open(gate);
  CHECK_FALSE(gate.stopped());
  gate.stop();
  CHECK(gate.stopped());
  CHECK_FALSE(gate.take(true));
  CHECK(gate.take(false));
  gate.close();
  CHECK_FALSE(gate.take(false));
}

/// Counts the messages that wait for bytes.
struct Waiting {
  SteadyClock clock{};
  Meter meter{"bytes", 0, clock};
  [[nodiscard]] std::int64_t now() const { return meter.read().queue_length; }
};

TEST_CASE("bytes are granted in order of admission, for any order of arrival and return") {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    constexpr int messages = 40;
    constexpr std::int64_t budget = 100;
    std::vector<int> passed;
    std::vector<ByteCredit> held;
    std::int64_t in_use = 0;
    Waiting waiting;
    const auto gate =
        std::make_shared<ByteGate<int>>(budget, waiting.meter, [&](int message, ByteCredit credit, ByteCredit) {
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
      returned.release();  // a second release gives nothing back
      CHECK(in_use <= budget);
    }
    while (static_cast<int>(passed.size()) < messages) {  // each round frees all bytes
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

/// A gate whose credits stay here, by message, until the test releases them.
struct Held {
  std::vector<ByteCredit> kept{}, passing{};
  Waiting waiting{};
  bool waits = false;
  std::shared_ptr<ByteGate<int>> gate;
  explicit Held(std::int64_t budget)
      : gate(std::make_shared<ByteGate<int>>(
            budget, waiting.meter,
            [this](int message, ByteCredit keep, ByteCredit pass) {
              CHECK(message == passed());
              kept.push_back(std::move(keep));
              passing.push_back(std::move(pass));
            },
            [this](bool now) {
              CHECK(now != waits);
              waits = now;
            })) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { gate->close(); }
  [[nodiscard]] int passed() const { return static_cast<int>(kept.size()); }
  [[nodiscard]] static std::int64_t sum(const std::vector<ByteCredit>& credits) {
    std::int64_t bytes = 0;
    for (const auto& credit : credits) bytes += credit.bytes();
    return bytes;
  }
};

TEST_CASE("a message that needs more than the budget passes alone, in its turn") {
  Held it(100);
  const std::array<std::int64_t, 5> files{60, 30, 500, 10, 700};
  for (int i = 0; i < 5; ++i) it.gate->offer(i, i, {0, files[static_cast<std::size_t>(i)]});
  CHECK(it.passed() == 2);
  it.passing[1].release();
  CHECK(it.passed() == 2);  // 500 waits for 60, and 10 waits behind it
  it.passing[0].release();
  CHECK(it.passed() == 3);
  it.passing[2].release();
  CHECK(it.passed() == 4);
  it.passing[3].release();
  CHECK(it.passed() == 5);
}

TEST_CASE("a message behind one that has not arrived does not count as waiting for bytes") {
  Held it(100);
  it.gate->offer(1, 1, 80);
  it.gate->offer(3, 3, 30);
  it.gate->offer(4, 4, 30);
  CHECK(it.waiting.now() == 0);
  it.gate->offer(0, 0, 20);
  CHECK(it.passed() == 2);
  CHECK(it.waiting.now() == 0);  // 3 and 4 wait for message 2, not for bytes
  CHECK_FALSE(it.waits);
  it.gate->offer(2, 2, 10);
  CHECK(it.waiting.now() == 3);
  CHECK(it.waits);
  it.kept[0].release();
  CHECK(it.passed() == 3);
  CHECK(it.waiting.now() == 2);
  it.kept[1].release();
  CHECK(it.passed() == 5);
  CHECK(it.waiting.now() == 0);
  CHECK_FALSE(it.waits);
}

TEST_CASE("kept bytes wait until they fit; passing ones wait until they fit or no others pass") {
  Held it(100);
  it.gate->offer(0, 0, {60, 20});
  it.gate->offer(1, 1, {30, 50});
  CHECK(it.passed() == 1);
  it.passing[0].release();
  CHECK(it.passed() == 2);  // 140 bytes are held
  it.gate->offer(2, 2, {10});
  it.gate->offer(3, 3, {0, 900});
  it.gate->offer(4, 4, {11});
  CHECK(it.passed() == 2);
  it.passing[1].release();
  CHECK(it.passed() == 4);
  it.passing[3].release();
  CHECK(it.passed() == 4);  // 100 bytes are kept
  it.kept[1].release();
  CHECK(it.passed() == 5);
}

TEST_CASE("giving passing bytes back lets everything pass, and at most the budget and one message are held") {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    constexpr std::int64_t budget = 100, largest = 300;
    Held it(budget);
    const auto within = [&] {
      CHECK(Held::sum(it.kept) <= budget);
      CHECK(Held::sum(it.kept) + Held::sum(it.passing) <= budget + largest);
    };
    for (int i = 0; i < 40; ++i) {
      it.gate->offer(i, i, {static_cast<std::int64_t>(random() % 50), static_cast<std::int64_t>(random() % largest)});
      within();
      if (it.passed() == 0 || random() % 2 == 0) continue;
      auto& credits = random() % 2 == 0 ? it.kept : it.passing;
      credits[random() % credits.size()].release();
      within();
    }
    while (it.passed() < 40) {
      const int before = it.passed();
      for (std::size_t i = 0; i < static_cast<std::size_t>(before); ++i) {
        auto passing = std::move(it.passing[i]);
        passing.release();
        // Releasing the oldest kept bytes is enough: the next message needs at most half the budget.
        if (it.passed() == before && Held::sum(it.kept) > budget / 2) {
          auto kept = std::move(it.kept[i]);
          kept.release();
        }
        within();
      }
      REQUIRE(it.passed() > before);
    }
  }
}

TEST_CASE("a closed gate passes nothing, and credits may outlive it") {
  ByteCredit kept;
  int passed = 0;
  auto waiting = std::make_optional<Waiting>();
  auto gate = std::make_shared<ByteGate<int>>(10, waiting->meter, [&](int, ByteCredit credit, ByteCredit) {
    ++passed;
    kept = std::move(credit);
  });
  gate->offer(0, 0, 10);
  gate->offer(1, 1, 10);
  CHECK(passed == 1);
  CHECK(waiting->now() == 1);
  gate->close();
  CHECK(waiting->now() == 0);
  waiting.reset();  // a closed gate does not use the meter any more
  gate.reset();
  kept.release();
  CHECK(passed == 1);
}

}  // namespace
}  // namespace millrace
