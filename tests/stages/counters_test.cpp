#include "stages/counters.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <vector>

#include "stages/registry.hpp"

namespace millrace {
namespace {

constexpr CounterInfo calls{"calls"};
constexpr CounterInfo faulty{"faulty", "taken although they are blue", "taken although it is blue"};
constexpr CounterInfo other{"other"};

TEST_CASE("each counter is shown once, in the order of the list, also if it is 0") {
  Counters counters({&calls, &faulty, &calls});
  counters[calls] += 3;
  ++counters[calls];
  using Counts = std::vector<std::pair<std::string, std::int64_t>>;
  CHECK(counters.counts() == Counts{{"calls", 4}, {"faulty", 0}});
  CHECK(counters.notes().empty());
}

TEST_CASE("pictures counted by name have a note, with the words for one or for many") {
  Counters counters({&calls, &faulty});
  ++counters[calls];
  counters[faulty].add("a.jpg");
  CHECK(counters[faulty].count() == 1);
  CHECK(counters.notes() == std::vector<std::string>{"1 picture taken although it is blue: a.jpg"});
  for (const char* path : {"b.jpg", "c.jpg", "d.jpg"}) counters[faulty].add(path);
  CHECK(counters.notes() ==
        std::vector<std::string>{"4 pictures taken although they are blue: a.jpg, b.jpg, c.jpg, ..."});
}

TEST_CASE("a counter that is not listed, and a name that two counters have, are errors of the program") {
  Counters counters({&calls});
  CHECK_THROWS_WITH_AS(++counters[other], doctest::Contains("counter 'other' is counted, but no stage lists it"),
                       std::logic_error);
  static constexpr CounterInfo calls_too{"calls"};
  CHECK_THROWS_WITH_AS(Counters({&calls, &calls_too}), doctest::Contains("two counters have the name 'calls'"),
                       std::logic_error);
}

TEST_CASE("many threads count at once") {
  Counters counters({&calls, &faulty});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 1000; ++n) {
        ++counters[calls];
        counters[faulty].add("a.jpg");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(counters[calls].count() == 4000);
  CHECK(counters[faulty].named().count == 4000);
}

TEST_CASE("the counters of the program's stages") {
  std::vector<std::string> names;  // users may add stages with counters of their own
  for (const auto& [name, count] : Counters(counters_of()).counts()) names.push_back(name);
  for (const char* name : {"bisect_calls", "decode_warnings", "decoder_boxes", "decoder_calls", "decoder_slots",
                           "detector_calls", "detector_skipped", "encoder_calls", "overlays_left_out", "split_calls",
                           "truncated_detections", "wrong_extensions"}) {
    CAPTURE(name);
    CHECK(std::ranges::count(names, name) == 1);
  }
}

}  // namespace
}  // namespace millrace
