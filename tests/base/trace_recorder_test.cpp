// Tests of the recorder: what it keeps of a long run, what it cuts, and events of several threads.
#include <doctest/doctest.h>
#include <pthread.h>

#include <atomic>
#include <latch>
#include <map>
#include <thread>

#include "base/trace.hpp"
#include "base/trace_recorder.hpp"

namespace millrace {
namespace {

const std::string decode = "decode";

TraceEvent event(std::int64_t number, std::int64_t ended_ns) {
  return {TraceEvent::Kind::work, 0, &decode, number, ended_ns - 1, ended_ns};
}

/// The numbers of the events that are left, in the order of visit(), by thread.
std::map<std::size_t, std::vector<std::int64_t>> numbers(const TraceRecorder& recorder) {
  std::map<std::size_t, std::vector<std::int64_t>> found;
  recorder.visit(
      [&](const TraceEvent& one, std::string_view, std::size_t thread) { found[thread].push_back(one.number); });
  return found;
}

constexpr auto chunk = static_cast<std::int64_t>(TraceRecorder::chunk_events);

TEST_CASE("a short run is recorded whole, with its texts") {
  TraceRecorder recorder;
  for (std::int64_t i = 0; i < 3 * chunk + 5; ++i) recorder.add(event(i, 10 * i), "file " + std::to_string(i));
  CHECK(recorder.cut().events == 0);
  std::int64_t next = 0;
  recorder.visit([&](const TraceEvent& one, std::string_view text, std::size_t thread) {
    CHECK(one.number == next);
    CHECK(one.name == &decode);
    CHECK(one.ended_ns == 10 * next);
    CHECK(text == "file " + std::to_string(next));
    CHECK(thread == 0);
    ++next;
  });
  CHECK(next == 3 * chunk + 5);
}

TEST_CASE("of a long run the first and the last events are left, and the cut counts the others") {
  TraceRecorder recorder(8);
  const std::int64_t count = 100 * chunk + 7;
  for (std::int64_t i = 0; i < count; ++i) recorder.add(event(i, 10 * i));
  const auto left = numbers(recorder).at(0);
  const auto cut = recorder.cut();
  CHECK(static_cast<std::int64_t>(left.size()) + cut.events == count);
  CHECK(left.front() == 0);
  CHECK(left.back() == count - 1);
  // The first four chunks, then the last four that are full and the one that is not.
  CHECK(static_cast<std::int64_t>(left.size()) == 8 * chunk + 7);
  CHECK(left[4 * chunk - 1] == 4 * chunk - 1);
  CHECK(left[4 * chunk] == 96 * chunk);
  CHECK(cut.begun_ns == 10 * 4 * chunk);
  CHECK(cut.ended_ns == 10 * (96 * chunk - 1) + 1);
}

TEST_CASE("long texts make a chunk full, so they are bounded too") {
  TraceRecorder recorder(8);
  const std::string text(TraceRecorder::chunk_text / 2, 'x');
  for (std::int64_t i = 0; i < 1000; ++i) recorder.add(event(i, i), text);
  // Two texts fill a chunk. The last chunk is full, but no event has replaced it yet.
  CHECK(numbers(recorder).at(0).size() == 2 * 9);
  CHECK(recorder.cut().events == 1000 - 18);
}

// The first part of a slow thread must not reach into the time of the cut, and its slow chunks must not widen the cut.
TEST_CASE("the cut is the same span of time on all threads") {
  TraceRecorder recorder(8);
  std::int64_t now = 0;
  const std::int64_t steps = 60 * chunk;
  std::atomic<int> turn{0};
  std::jthread slow([&] {
    for (std::int64_t i = 0; i < steps / 16; ++i) {
      while (turn != 1) std::this_thread::yield();
      recorder.add(event(i, ++now));
      turn = 0;
    }
  });
  for (std::int64_t i = 0; i < steps; ++i) {
    while (turn != 0) std::this_thread::yield();
    recorder.add(event(i, ++now));
    if (i % 16 == 15) turn = 1;
  }
  slow.join();
  const auto cut = recorder.cut();
  CHECK(cut.events > 0);
  std::int64_t seen = 0;
  recorder.visit([&](const TraceEvent& one, std::string_view, std::size_t) {
    ++seen;
    CHECK((one.ended_ns < cut.begun_ns || one.ended_ns >= cut.ended_ns));
  });
  CHECK(seen + cut.events == now);
  // At least the first three and the last three chunks of the quick thread are left.
  CHECK(cut.begun_ns > 3 * chunk);
  CHECK(cut.ended_ns < now - 3 * chunk);
}

TEST_CASE("threads have the names of their first event, and a new recorder starts anew") {
  for (int round = 0; round < 2; ++round) {
    TraceRecorder recorder(8);
    const auto record = [&](const char* name, int count) {
      pthread_setname_np(pthread_self(), name);
      for (int i = 0; i < count; ++i) recorder.add(event(i, i));
    };
    std::jthread([&] { record("lane 0", 3); }).join();
    std::jthread([&] { record("commit 0", 4); }).join();
    recorder.add(event(7, 7));
    REQUIRE(recorder.threads().size() == 3);
    CHECK(recorder.threads()[0] == "lane 0");
    CHECK(recorder.threads()[1] == "commit 0");
    const auto found = numbers(recorder);
    CHECK(found.at(0).size() == 3);
    CHECK(found.at(1).size() == 4);
    CHECK(found.at(2) == std::vector<std::int64_t>{7});
  }
}

TEST_CASE("no event is lost when many threads record at once") {
  TraceRecorder recorder(64);
  constexpr int threads = 8;
  constexpr std::int64_t each = 5 * chunk;
  std::latch ready(threads);
  {
    std::vector<std::jthread> all;
    for (int t = 0; t < threads; ++t) {
      all.emplace_back([&] {
        ready.arrive_and_wait();
        for (std::int64_t i = 0; i < each; ++i) recorder.add(event(i, i), "x");
      });
    }
  }
  CHECK(recorder.cut().events == 0);
  const auto found = numbers(recorder);
  CHECK(found.size() == threads);
  for (const auto& [thread, of_thread] : found) {
    REQUIRE(of_thread.size() == each);
    for (std::int64_t i = 0; i < each; ++i) CHECK(of_thread[static_cast<std::size_t>(i)] == i);
  }
}

TEST_CASE("a trace passes ranges, waits and counts to its recorder") {
  TraceRecorder recorder;
  const Trace trace(&recorder);
  CHECK(trace.records());
  {
    Trace::Range range(trace, decode, 3, 16);
    range.end(100, 150, "a.jpg");
  }
  auto wait = trace.begin_wait(decode, 4, 8, 200);
  trace.end_wait(wait, 260);
  trace.end_wait(wait, 270);  // it has ended already
  trace.queue(decode, 5, 300);
  trace.committed(24, 400);
  std::vector<TraceEvent> all;
  recorder.visit([&](const TraceEvent& one, std::string_view text, std::size_t) {
    CHECK(text == (all.empty() ? "a.jpg" : ""));
    all.push_back(one);
  });
  using Kind = TraceEvent::Kind;
  const std::vector<TraceEvent> expected{{Kind::work, 16, &decode, 3, 100, 150},
                                         {Kind::wait, 8, &decode, 4, 200, 260},
                                         {Kind::queue, 0, &decode, 5, 300, 300},
                                         {Kind::committed, 0, nullptr, 24, 400, 400}};
  REQUIRE(all.size() == expected.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].kind == expected[i].kind);
    CHECK(all[i].frames == expected[i].frames);
    CHECK(all[i].name == expected[i].name);
    CHECK(all[i].number == expected[i].number);
    CHECK(all[i].begun_ns == expected[i].begun_ns);
    CHECK(all[i].ended_ns == expected[i].ended_ns);
  }
}

TEST_CASE("a trace without a recorder records nothing") {
  const Trace trace;
  CHECK_FALSE(trace.records());
  Trace::Range range(trace, decode, 3);
  range.end(100, 150);
  auto wait = trace.begin_wait(decode, 4, 8, 200);
  trace.end_wait(wait, 260);
  trace.queue(decode, 5, 300);
  trace.committed(24, 400);
}

}  // namespace
}  // namespace millrace
