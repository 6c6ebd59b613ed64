#include "io/results/segments.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/io/files/memory_files.hpp"
#include "tests/io/files/temporary_folder.hpp"
#include "tests/io/results/segment_plan.hpp"
#include "tests/sanitized.hpp"

namespace millrace {
namespace {

using namespace segment_plan;

TEST_CASE("segments have their lines in plan order, and manifests that describe them") {
  const MemoryFiles files;
  const Counts counts = run(small_plan, files);
  check_counts(counts, expected_counts(small_plan));
  CHECK(counts.resumed == 0);
  CHECK(files.contents().size() == 6);
  for (const auto& segment : small_plan) {
    const std::string base = "/out/segments/00000" + std::to_string(segment.number);
    std::string expected;
    for (const std::int64_t id : segment.item_ids) expected += line_of(id).json + "\n";
    CHECK(files.content(base + ".jsonl") == expected);
    const auto manifest = Manifest::from_text(files.content(base + ".manifest.json"));
    REQUIRE(manifest);
    CHECK(manifest->segment == segment.number);
    CHECK(manifest->plan_hash == "plan");
    CHECK(manifest->bytes == static_cast<std::int64_t>(expected.size()));
    CHECK(manifest->xxh3 == xxh3_64_hex(expected));
    CHECK(manifest->first_item == segment.item_ids.front());
    CHECK(manifest->last_item == segment.item_ids.back());
    check_counts(manifest->counts, expected_counts({segment}));
  }
}

TEST_CASE("a second run finds everything done and changes nothing") {
  const MemoryFiles files;
  run(small_plan, files);
  const auto before = files.contents();
  files.restart();
  const Counts counts = run(small_plan, files);
  check_counts(counts, expected_counts(small_plan));
  CHECK(counts.resumed == 13);
  CHECK(files.contents() == before);
  CHECK(files.state->record.empty());
}

TEST_CASE("1,000 random orders of batches over several open segments give the same bytes" *
          doctest::skip(thread_sanitized)) {
  const auto plan = planned({9, 4, 1, 12, 6});
  const MemoryFiles first;
  run(plan, first);
  for (unsigned seed = 1; seed <= 1000; ++seed) {
    const MemoryFiles files;
    run(plan, files, seed, "/out", 1 + seed % 5);
    REQUIRE(files.contents() == first.contents());
  }
}

TEST_CASE("journals of another plan are not used, and its finished segments are refused") {
  const MemoryFiles files;
  {
    SegmentStore store("/out", "other plan", {}, files);
    store.open_segment(0, small_plan[0].item_ids, small_plan[0].batches);
    store.append(0, 0, lines_of(small_plan[0], 0));
  }
  files.restart();
  SegmentStore store("/out", "plan", {}, files);
  CHECK(store.open_segment(0, small_plan[0].item_ids, small_plan[0].batches) == std::vector<char>{0, 0, 0});
  CHECK(store.notes().size() == 1);

  const MemoryFiles done;
  run(small_plan, done);
  CHECK_THROWS_WITH_AS(SegmentStore("/out", "other plan", {}, done), doctest::Contains("belongs to plan plan"),
                       OutputMismatchError);
}

TEST_CASE("journals of other items are not used, and a segment that is done with other items is refused") {
  const PlannedSegment& segment = small_plan[0];
  const MemoryFiles files;
  const auto open = [&](SegmentStore& store, const std::string& items_hash) {
    return store.open_segment(0, segment.item_ids, segment.batches, items_hash);
  };
  const auto append = [&](SegmentStore& store, std::size_t batch) {
    store.append(0, static_cast<int>(batch), lines_of(segment, batch));
  };
  {
    SegmentStore store("/out", "plan", {}, files);
    open(store, "items");
    append(store, 0);
  }
  {
    SegmentStore store("/out", "plan", {}, files);
    CHECK(open(store, "items") == std::vector<char>{1, 0, 0});
  }
  {
    SegmentStore store("/out", "plan", {}, files);
    CHECK(open(store, "other items") == std::vector<char>{0, 0, 0});
    for (std::size_t batch = 0; batch < 3; ++batch) append(store, batch);
    CHECK(store.segment_done(0, "other items"));
    CHECK_THROWS_AS((void)store.segment_done(0, "items"), OutputMismatchError);
  }
  SegmentStore store("/out", "plan", {}, files);
  CHECK(store.segment_done(0));
  CHECK(store.segment_done(0, "other items"));
  CHECK_THROWS_WITH_AS((void)store.segment_done(0, "items"), doctest::Contains("other pictures"), OutputMismatchError);
  CHECK_THROWS_AS(open(store, "items"), OutputMismatchError);
  CHECK(open(store, "other items") == std::vector<char>{1, 1, 1});
  CHECK(!store.segment_done(1, "items"));
}

TEST_CASE("batches and items that the plan does not have are refused, and nothing of them is written") {
  const MemoryFiles files;
  SegmentStore store("/out", "plan", {}, files);
  const PlannedSegment& segment = small_plan[0];
  CHECK_THROWS_AS(store.append(0, 0, lines_of(segment, 0)), std::logic_error);
  CHECK_THROWS_AS(store.open_segment(0, {1, 2}, {{0}}), std::logic_error);
  CHECK_THROWS_AS(store.open_segment(0, {1, 2}, {{0, 1}, {1}}), std::logic_error);
  CHECK_THROWS_AS(store.open_segment(0, {1, 2}, {{0, 2}}), std::logic_error);
  CHECK_THROWS_AS(store.open_segment(0, {1, 2}, {{0, 1}, {}}), std::logic_error);
  store.open_segment(0, segment.item_ids, segment.batches);
  CHECK_THROWS_AS(store.open_segment(0, segment.item_ids, segment.batches), std::logic_error);
  CHECK_THROWS_AS(store.append(0, 3, lines_of(segment, 0)), std::logic_error);
  CHECK_THROWS_AS(store.append(0, -1, lines_of(segment, 0)), std::logic_error);
  CHECK_THROWS_AS(store.append(0, 1, lines_of(segment, 0)), std::logic_error);
  auto lines = lines_of(segment, 0);
  lines.pop_back();
  CHECK_THROWS_AS(store.append(0, 0, lines), std::logic_error);
  lines.push_back(lines.front());
  CHECK_THROWS_AS(store.append(0, 0, lines), std::logic_error);
  CHECK(files.content("/out/segments/000000.part").empty());
  store.append(0, 0, lines_of(segment, 0));
  CHECK_THROWS_AS(store.append(0, 0, lines_of(segment, 0)), std::logic_error);
}

TEST_CASE("a segment without items is done when it is opened") {
  const MemoryFiles files;
  SegmentStore store("/out", "plan", {}, files);
  CHECK(store.open_segment(4, {}, {}).empty());
  CHECK(store.segment_done(4));
  CHECK(files.content("/out/segments/000004.jsonl").empty());
}

TEST_CASE("one thread opens segments while others append") {
  const auto plan = planned(std::vector<int>(20, 30));
  const MemoryFiles expected;
  run(plan, expected);
  const TemporaryFolder folder;
  SegmentStoreOptions options;
  options.sync_every_ns = 1'000'000;
  SegmentStore store(folder.path(), "plan", options);
  std::mutex mutex;
  std::vector<std::pair<std::size_t, std::size_t>> waiting;
  bool all_open = false;
  const auto take = [&](std::pair<std::size_t, std::size_t>& taken) {
    for (;; std::this_thread::yield()) {
      const std::scoped_lock lock(mutex);
      if (!waiting.empty()) {
        taken = waiting.back();
        waiting.pop_back();
        return true;
      }
      if (all_open) return false;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      std::pair<std::size_t, std::size_t> next;
      while (take(next)) {
        store.append(plan[next.first].number, static_cast<int>(next.second), lines_of(plan[next.first], next.second));
      }
    });
  }
  for (std::size_t s = 0; s < plan.size(); ++s) {
    store.open_segment(plan[s].number, plan[s].item_ids, plan[s].batches);
    const std::scoped_lock lock(mutex);
    for (std::size_t batch = 0; batch < plan[s].batches.size(); ++batch) waiting.emplace_back(s, batch);
  }
  {
    const std::scoped_lock lock(mutex);
    all_open = true;
  }
  for (auto& thread : threads) thread.join();
  check_counts(store.totals(), expected_counts(plan));
  for (const auto& [path, content] : expected.contents()) {
    CHECK(read_text_file(folder.path() + path.substr(std::string("/out").size()), 1 << 20) == content);
  }
}

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0;
  std::int64_t resident = 0;
  statm >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST_CASE("an open segment does not hold its lines in memory") {
  constexpr int items = 2048;
  constexpr int batch_size = 16;
  constexpr std::size_t line_bytes = 20'000;
  constexpr std::int64_t all_bytes = std::int64_t{items} * line_bytes;
  PlannedSegment segment;
  for (int id = 0; id < items; ++id) {
    if (id % batch_size == 0) segment.batches.emplace_back();
    segment.batches.back().push_back(id);
    segment.item_ids.push_back(id);
  }
  const TemporaryFolder folder;
  SegmentStore store(folder.path(), "plan");
  store.open_segment(0, segment.item_ids, segment.batches);
  const auto append = [&](std::size_t batch) {
    auto lines = lines_of(segment, batch);
    for (Line& line : lines) {
      line.json.pop_back();
      line.json += ", \"x\": \"" + std::string(line_bytes - line.json.size(), 'x') + "\"}";
    }
    store.append(0, static_cast<int>(batch), lines);
  };
  append(0);
  const std::int64_t before = resident_bytes();
  std::int64_t max = 0;
  for (std::size_t batch = 1; batch < segment.batches.size(); ++batch) {
    append(batch);
    max = std::max(max, resident_bytes());
  }
  CHECK(store.segment_done(0));
  CHECK(std::filesystem::file_size(folder.path() + "/segments/000000.jsonl") > all_bytes);
  if (!sanitized) CHECK(max - before < all_bytes / 4);
}

TEST_CASE("names of segment files are accepted only as the program writes them") {
  using Kind = SegmentFile::Kind;
  CHECK(SegmentFile{123, 0, Kind::data}.name() == "000123.jsonl");
  CHECK(SegmentFile{1234567, 2, Kind::manifest}.name() == "1234567.r2.manifest.json");
  for (const std::string name :
       {"000123.jsonl", "000123.manifest.json", "000123.part", "000123.r1.jsonl", "1234567.r12.manifest.json"}) {
    const auto file = SegmentFile::from_name(name);
    REQUIRE(file);
    CHECK(file->name() == name);
  }
  for (const std::string name : {"", ".", "x.jsonl", "123.jsonl", "0000123.jsonl", "-00123.jsonl", "000123.r0.jsonl",
                                 "000123.r.jsonl", "000123.r01.jsonl", "000123.json", ".tmp-000123.jsonl", "000123",
                                 "99999999999999999999.jsonl", "000123.r1", "000123.r"}) {
    CAPTURE(name);
    CHECK(!SegmentFile::from_name(name));
  }
}

TEST_CASE("a manifest of a newer program is refused, not computed again") {
  Manifest manifest;
  std::string text = manifest.to_text();
  const auto replace = [&text](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  replace("\"schema\":1", "\"schema\":2");
  const std::size_t check = text.find(",\"check\"");
  text = text.substr(0, check) + ",\"check\":\"" + xxh3_64_hex(text.substr(0, check) + "}") + "\"}\n";
  CHECK_THROWS_AS(Manifest::from_text(text), OutputMismatchError);
}

}  // namespace
}  // namespace millrace
