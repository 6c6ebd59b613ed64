#include "gpu/fake_stream.hpp"

#include <doctest/doctest.h>

#include <stdexcept>

namespace millrace {
namespace {

TEST_CASE("work that fails takes what comes behind it along, and is not done again") {
  FakeStream stream;
  int first = 0, behind = 0, later = 0;
  const auto memory = stream.allocate(1000);
  stream.defer([&, memory] { ++first; });
  stream.defer([] { throw std::runtime_error("no"); });
  stream.defer([&, memory] { ++behind; });
  CHECK_THROWS_AS(stream.wait(), std::runtime_error);
  stream.defer([&] { ++later; });
  stream.wait();
  CHECK(first == 1);
  CHECK(behind == 0);
  CHECK(later == 1);
}

TEST_CASE("work that was never waited for keeps no memory") {
  std::weak_ptr<void> watched;
  {
    FakeStream stream;
    auto memory = stream.allocate(1000);
    watched = memory;
    stream.defer([memory = std::move(memory)] {});
    CHECK(!watched.expired());
  }
  CHECK(watched.expired());
}

}  // namespace
}  // namespace millrace
