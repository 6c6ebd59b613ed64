// 500 graphs of random shape with random failures. Checks their counts, bounds and results.
#include <doctest/doctest.h>

#include <random>

#include "tests/pipeline/fake_graph.hpp"

namespace millrace {
namespace {

using fake::GraphFixture;
using fake::message;
using fake::Picture;
using fake::Pictures;

int between(std::mt19937& random, int min, int max) { return std::uniform_int_distribution<int>(min, max)(random); }

std::vector<std::string> some_names(std::mt19937& random, const std::string& prefix, int max) {
  std::vector<std::string> names;
  for (int i = between(random, 0, max); i > 0; --i) names.push_back(prefix + std::to_string(i));
  return names;
}

/// Whether the body of `stage` fails for the frame or batch `id`. A hash decides, so that all threads get the same answer.
bool fails(std::uint32_t seed, const std::string& stage, std::int64_t id, double share) {
  std::seed_seq mixed{seed, static_cast<std::uint32_t>(std::hash<std::string>{}(stage)),
                      static_cast<std::uint32_t>(id)};
  std::uint32_t value = 0;
  mixed.generate(&value, &value + 1);
  return value < share * 4294967296.0;
}

TEST_CASE("500 random graphs: planned = committed, counts stay within bounds, each frame once") {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const int frames = between(random, 0, 150);
    const int views = between(random, 1, 7);
    const int max_batch = between(random, 1, 9);
    GraphFixture fixture;
    fixture.options.max_batch = max_batch;
    fixture.options.admission_items = 2 * max_batch + between(random, 0, 20);
    fixture.options.slab_bytes = between(random, 1, 1000);
    fixture.options.byte_budget = 2 * max_batch * fixture.options.slab_bytes + between(random, 0, 2000);
    fixture.options.read_threads = between(random, 1, 4);
    fixture.options.read_ahead = between(random, 1, 12);
    fixture.options.lanes = between(random, 1, 3);
    fixture.options.workers = between(random, 1, 2);
    fixture.frame_stages = some_names(random, "frame ", 3);
    fixture.lane_stages = some_names(random, "lane ", 4);
    fixture.batch_stages = some_names(random, "batch ", 2);
    std::vector<int> view(static_cast<std::size_t>(frames));
    for (auto& v : view) v = between(random, 0, views - 1);
    fixture.plan = fake::planned(frames, views, max_batch, between(random, 1, 200),
                                 [&](int id) { return view[static_cast<std::size_t>(id)]; });
    const auto files_budget = file_share(fixture.options);
    const auto decoding_budget = fixture.options.byte_budget - files_budget;
    // Pictures are mostly within the budgets in some graphs, and mostly beyond them in others.
    const int largest_file = between(random, 0, static_cast<int>(2 * files_budget));
    const int largest_working = between(random, 0, static_cast<int>(2 * fixture.options.slab_bytes));
    for (auto& picture : fixture.plan) {
      picture.file = between(random, 0, largest_file);
      picture.pixels = between(random, 0, static_cast<int>(fixture.options.slab_bytes));
      picture.working = between(random, 0, largest_working);
    }
    const double share = between(random, 0, 1) * 0.05;
    fixture.in_frame = [&](Picture& frame, const std::string& stage) {
      if (fails(seed, stage, frame.id, share)) throw std::runtime_error("planted");
    };
    fixture.in_batch = [&](Pictures& batch, const std::string& stage) {
      if (stage != "commit" && fails(seed, stage, batch.frames[0]->batch, share)) throw std::runtime_error("planted");
    };

    const auto result = fixture.run();

    REQUIRE(message(result.error) == "");
    REQUIRE(result.planned == frames);
    REQUIRE(result.committed == frames);
    REQUIRE(static_cast<int>(fixture.commits.size()) == frames);
    for (const auto& [id, times] : fixture.commits) REQUIRE(times == 1);
    REQUIRE(fixture.inside.highest() <= fixture.options.admission_items);
    REQUIRE(fixture.inside.now() == 0);
    REQUIRE(fixture.bytes.highest() <= decoding_budget);
    REQUIRE(fixture.decoding.highest() <= decoding_budget + largest_working);
    REQUIRE(fixture.files.highest() <= std::max<std::int64_t>(files_budget, largest_file));
    REQUIRE(fixture.ahead.highest() <= fixture.options.read_ahead);
    REQUIRE(fixture.on_lanes.highest() <= fixture.options.lanes);
    REQUIRE(fixture.committing.highest() <= 1);
    for (const auto& batch : fixture.committed) {
      bool lost = false;  // the whole batch failed, or all of its frames did
      for (const auto& frame : batch) {
        std::string expected;
        for (const auto& stage : {std::string("read")}) {
          if (expected.empty() && fails(seed, stage, frame->id, share)) expected = stage;
        }
        for (const auto& stage : fixture.frame_stages) {
          if (expected.empty() && fails(seed, stage, frame->id, share)) expected = stage;
        }
        for (const auto* stages : {&fixture.lane_stages, &fixture.batch_stages}) {
          for (const auto& stage : *stages) {
            if (expected.empty() && fails(seed, stage, frame->batch, share)) expected = stage;
          }
        }
        lost = lost || frame->failed_in != expected;
      }
      REQUIRE_FALSE(lost);
    }
  }
}

}  // namespace
}  // namespace millrace
