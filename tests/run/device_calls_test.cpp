// Copies and waits of hand-made runs, compared with what the stages declare.
#include "run/device_calls.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "stages/embed.hpp"
#include "stages/registry.hpp"
#include "stages/semantic.hpp"

namespace millrace {
namespace {

Reading served(const std::string& name, Unit unit, std::int64_t items, std::int64_t failed = 0) {
  Reading it;
  it.name = name;
  it.unit = unit;
  it.items = items;
  it.failed = failed;
  return it;
}

/// 41 of 44 pictures were decoded and came to the lanes, in 10 batches. One more batch had no good picture.
Snapshot window() {
  Snapshot it;
  it.resources = {{served("read", Unit::frames, 44), {}},
                  {served("workers", Unit::tasks, 55),
                   {served("decode", Unit::frames, 44, 3), served("encode", Unit::batches, 11)}},
                  {served("lane", Unit::batches, 11), {served("preprocess", Unit::batches, 10)}, true}};
  return it;
}

Chain chain_of(const std::vector<RecipeStage>& stages) {
  return {stages, [](const std::string&) { return OptionValues{}; }};
}

TEST_CASE("the default recipe uploads each picture, and downloads once and waits twice in each batch") {
  const Counters counters{counters_of()};
  const auto calls =
      device_calls(chain_of(default_stages()), window(), counters, {41, 12, 22, 2},
                   {{"preprocess", {{"preprocess.cpp:80", {41, 0, 0, 0}}}},
                    {"detect", {{"detect.cpp:159", {0, 0, 10, 0}}}},
                    {"postprocess", {{"outline.cpp:217", {0, 12, 0, 0}}, {"postprocess.cpp:56", {0, 0, 12, 2}}}}});
  REQUIRE(calls);
  CHECK(calls->pictures == 41);
  CHECK(calls->batches == 10);
  CHECK(calls->declared.uploads == 41);
  CHECK(calls->declared.downloads == 10);
  CHECK(calls->declared.waits == 20);
  CHECK(excess_of(*calls).empty());  // two overflows explain two downloads and two waits
  DeviceCalls more = *calls;
  more.made.waits = 25;
  CHECK(excess_of(more) ==
        "the lanes copied or waited more often than their stages declare: 23 waits and 2 after overflows "
        "instead of at most 20 in 10 batches; docs/tracing.md shows how to find the cause");
  // The stage that did it has a name, and so have the calls that waited.
  const auto postprocess = std::ranges::find(more.stages, "postprocess", &DeviceCalls::OfStage::name);
  REQUIRE(postprocess != more.stages.end());
  postprocess->made["detect.cpp:159"].waits += 3;
  CHECK(
      excess_of(more) ==
      "the lanes copied or waited more often than their stages declare: 23 waits and 2 after overflows "
      "instead of at most 20 in 10 batches; stage 'postprocess': 13 waits and 2 after overflows instead of at most 10 "
      "(3 at detect.cpp:159, 12 at postprocess.cpp:56); "
      "docs/tracing.md shows how to find the cause");
  // The second download of an overflow is one of the line that copies.
  DeviceCalls copied = *calls;
  copied.made.downloads = 14;
  std::ranges::find(copied.stages, "postprocess", &DeviceCalls::OfStage::name)->made["outline.cpp:217"].downloads = 14;
  CHECK(
      excess_of(copied) ==
      "the lanes copied or waited more often than their stages declare: 12 downloads and 2 after overflows instead of "
      "at most 10 in 10 batches; stage 'postprocess': 12 downloads and 2 after overflows instead of at most 10 (14 at "
      "outline.cpp:217); docs/tracing.md shows how to find the cause");
  more.made.uploads = 50;
  CHECK(excess_of(more).find("50 uploads instead of at most 41, 23 waits and 2 after") != std::string::npos);
}

TEST_CASE("without a batch there is nothing to compare") {
  const Counters counters{counters_of()};
  CHECK_FALSE(device_calls(chain_of(default_stages()), {}, counters, {}, {}));
}

TEST_CASE("an embedder waits once a batch, and downloads once for each of its calls") {
  const Chain chain = chain_of({"decode", "preprocess", {"first", "embed"}, {"second", "embed"}, "encode"});
  Counters counters{counters_of()};
  counters[embedder_calls] += 27;
  const auto calls = device_calls(
      chain, window(), counters, {41, 27, 20, 0},
      {{"first", {{"model_call.cpp:300", {0, 14, 10, 0}}}}, {"second", {{"model_call.cpp:300", {0, 13, 10, 0}}}}});
  REQUIRE(calls);
  CHECK(calls->declared.downloads == 27);
  CHECK(calls->declared.waits == 20);
  CHECK(excess_of(*calls).empty());
}

TEST_CASE(
    "slabs of a semantic segmenter need an upload each on their way in, and a download and a wait on their way out") {
  const Chain chain = chain_of({"decode", "tiles", "semantic", "encode"});
  Counters counters{counters_of()};
  counters[slabs_in] += 300;
  counters[slabs_out] += 200;
  counters[label_maps] += 5;  // of pictures whose labels left in one piece
  const auto calls = device_calls(chain, window(), counters, {341, 205, 210, 0},
                                  {{"semantic", {{"semantic.cpp:168", {341, 205, 210, 0}}}}});
  REQUIRE(calls);
  CHECK(calls->declared.uploads == 41 + 300);
  CHECK(calls->declared.downloads == 5 + 200);
  CHECK(calls->declared.waits == 10 + 200);
  CHECK(excess_of(*calls).empty());
  DeviceCalls more = *calls;
  more.made.downloads = 206;
  ++more.stages.front().made["heatmaps.cpp:7"].downloads;
  CHECK(
      excess_of(more) ==
      "the lanes copied or waited more often than their stages declare: 206 downloads instead of at most 205 in 10 "
      "batches; stage 'semantic': 206 downloads instead of at most 205 (1 at heatmaps.cpp:7, 205 at semantic.cpp:168); "
      "docs/tracing.md shows how to find the cause");
}

}  // namespace
}  // namespace millrace
