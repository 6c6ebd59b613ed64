#include "pipeline/ticker.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <new>

namespace millrace {
namespace {

TEST_CASE("a ticker calls its function again and again until it is destroyed") {
  std::atomic<int> calls = 0;
  std::latch three(3);
  {
    const Ticker ticker("test", std::chrono::milliseconds(1), [&] {
      if (++calls <= 3) three.count_down();
      throw std::bad_alloc();  // the next call comes all the same
    });
    three.wait();
  }
  const int ended = calls;
  CHECK_GE(ended, 3);
  CHECK_EQ(calls, ended);
}

TEST_CASE("a ticker that is destroyed at once does not wait for its period") {
  bool called = false;
  {
    const Ticker ticker("test", std::chrono::hours(1), [&] { called = true; });
  }
  CHECK_FALSE(called);
}

}  // namespace
}  // namespace millrace
