// 500 graphs of random shape with random failures. Checks their counts, bounds and results.
#include <doctest/doctest.h>

#include <random>

#include "tests/pipeline/fake_graph.hpp"

namespace millrace {
namespace {

using fake::message;
using fake::Picture;
using fake::Pictures;
using fake::Rig;

int between(std::mt19937& random, int least, int most) {
  return std::uniform_int_distribution<int>(least, most)(random);
}

std::vector<std::string> some_names(std::mt19937& random, const std::string& prefix, int most) {
  std::vector<std::string> names;
  for (int i = between(random, 0, most); i > 0; --i) names.push_back(prefix + std::to_string(i));
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
    Rig rig;
    rig.options.max_batch = max_batch;
    rig.options.admission_items = 2 * max_batch + between(random, 0, 20);
    rig.options.slab_bytes = between(random, 1, 1000);
    rig.options.byte_budget = 2 * max_batch * rig.options.slab_bytes + between(random, 0, 2000);
    rig.options.read_threads = between(random, 1, 4);
    rig.options.read_ahead = between(random, 1, 12);
    rig.options.lanes = between(random, 1, 3);
    rig.options.workers = between(random, 1, 2);
    rig.frame_stages = some_names(random, "frame ", 3);
    rig.lane_stages = some_names(random, "lane ", 4);
    rig.batch_stages = some_names(random, "batch ", 2);
    std::vector<int> view(static_cast<std::size_t>(frames));
    for (auto& v : view) v = between(random, 0, views - 1);
    rig.plan = fake::planned(frames, views, max_batch, between(random, 1, 200),
                             [&](int id) { return view[static_cast<std::size_t>(id)]; });
    const auto files_budget = file_share(rig.options);
    const auto decoding_budget = rig.options.byte_budget - files_budget;
    // Pictures are mostly within the budgets in some graphs, and mostly beyond them in others.
    const int largest_file = between(random, 0, static_cast<int>(2 * files_budget));
    const int largest_working = between(random, 0, static_cast<int>(2 * rig.options.slab_bytes));
    for (auto& picture : rig.plan) {
      picture.file = between(random, 0, largest_file);
      picture.pixels = between(random, 0, static_cast<int>(rig.options.slab_bytes));
      picture.working = between(random, 0, largest_working);
    }
    const double share = between(random, 0, 1) * 0.05;
    rig.in_frame = [&](Picture& frame, const std::string& stage) {
      if (fails(seed, stage, frame.id, share)) throw std::runtime_error("planted");
    };
    rig.in_batch = [&](Pictures& batch, const std::string& stage) {
      if (stage != "commit" && fails(seed, stage, batch.frames[0]->batch, share)) throw std::runtime_error("planted");
    };

    const auto result = rig.run();

    REQUIRE(message(result.error) == "");
    REQUIRE(result.planned == frames);
    REQUIRE(result.committed == frames);
    REQUIRE(static_cast<int>(rig.commits.size()) == frames);
    for (const auto& [id, times] : rig.commits) REQUIRE(times == 1);
    REQUIRE(rig.inside.highest() <= rig.options.admission_items);
    REQUIRE(rig.inside.now() == 0);
    REQUIRE(rig.bytes.highest() <= decoding_budget);
    REQUIRE(rig.decoding.highest() <= decoding_budget + largest_working);
    REQUIRE(rig.files.highest() <= std::max<std::int64_t>(files_budget, largest_file));
    REQUIRE(rig.ahead.highest() <= rig.options.read_ahead);
    REQUIRE(rig.on_lanes.highest() <= rig.options.lanes);
    REQUIRE(rig.committing.highest() <= 1);
    for (const auto& batch : rig.committed) {
      bool lost = false;  // the whole batch failed, or all of its frames did
      for (const auto& frame : batch) {
        std::string expected;
        for (const auto& stage : {std::string("read")}) {
          if (expected.empty() && fails(seed, stage, frame->id, share)) expected = stage;
        }
        for (const auto& stage : rig.frame_stages) {
          if (expected.empty() && fails(seed, stage, frame->id, share)) expected = stage;
        }
        for (const auto* stages : {&rig.lane_stages, &rig.batch_stages}) {
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
