// The segment store after kills, power cuts, storage failures and damage.
// It must write the files of an uninterrupted run.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "io/results/segments.hpp"
#include "tests/io/files/memory_files.hpp"
#include "tests/io/files/temporary_folder.hpp"
#include "tests/io/results/segment_plan.hpp"
#include "tests/sanitized.hpp"

namespace millrace {
namespace {

using namespace segment_plan;

TEST_CASE("after a kill at any operation, the next run writes the files of an uninterrupted one") {
  const auto expected = uninterrupted();
  int kills = 0;
  for (bool killed = true; killed; ++kills) {
    CAPTURE(kills);
    const MemoryFiles files;
    files.state->kill_at = kills + 1;
    killed = false;
    try {
      run(small_plan, files);
    } catch (const ProcessKilled&) {
      killed = true;
    }
    files.restart();
    // The second attempt is killed, too, at another operation.
    files.state->kill_at = 1 + kills * 7 % 40;
    try {
      run(small_plan, files, 2);
    } catch (const ProcessKilled&) {
    }
    files.restart();
    check_counts(run(small_plan, files, 3), expected_counts(small_plan));
    REQUIRE(files.contents() == expected);
  }
  CHECK(kills > 50);
}

TEST_CASE("after a power cut at any operation, too, for any loss of unsynced bytes and names" *
          doctest::skip(thread_sanitized)) {
  const auto expected = uninterrupted();
  int cuts = 0;
  for (bool killed = true; killed; ++cuts) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      CAPTURE(cuts);
      CAPTURE(seed);
      const MemoryFiles files;
      files.state->kill_at = cuts + 1;
      killed = false;
      try {
        run(small_plan, files, seed);
      } catch (const ProcessKilled&) {
        killed = true;
      }
      files.cut_power(seed);
      // A manifest never exists without its data.
      for (const auto& [path, content] : files.contents()) {
        const auto manifest = Manifest::from_text(content);
        if (!path.ends_with(".manifest.json") || path.find(".tmp-") != std::string::npos) continue;
        REQUIRE(manifest);
        const std::string data = path.substr(0, path.size() - std::string(".manifest.json").size()) + ".jsonl";
        REQUIRE(files.contents().contains(data));
        REQUIRE(xxh3_64_hex(files.content(data)) == manifest->xxh3);
      }
      run(small_plan, files, seed + 1);
      REQUIRE(files.contents() == expected);
    }
  }
  CHECK(cuts > 50);
}

TEST_CASE("a storage failure at any operation is a StorageError, and the next run finishes") {
  const auto expected = uninterrupted();
  for (const int number : {ENOSPC, EIO, EROFS, EDQUOT, ESTALE}) {
    int failures = 0;
    for (int at = 1;; ++at) {
      CAPTURE(number);
      CAPTURE(at);
      const MemoryFiles files;
      files.state->fail_at = at;
      files.state->fail_with = number;
      bool failed = false;
      try {
        run(small_plan, files);
      } catch (const StorageError& error) {
        failed = true;
        CHECK(error.error_number() == number);
        CHECK(std::string(error.what()).find("/out") != std::string::npos);
      }
      if (files.state->operations < at) break;
      failures += failed ? 1 : 0;
      for (const auto& [path, content] : files.contents()) CHECK(path.find(".tmp-") == std::string::npos);
      if (at % 2 == 0) files.cut_power(static_cast<unsigned>(at));
      files.restart();
      run(small_plan, files, 2);
      REQUIRE(files.contents() == expected);
    }
    CHECK(failures > 40);
  }
}

TEST_CASE("after a storage failure the store accepts nothing more") {
  const MemoryFiles files;
  SegmentStore store("/out", "plan", {}, files);
  const PlannedSegment& segment = small_plan[0];
  store.open_segment(segment.number, segment.item_ids, segment.batches);
  files.state->fail_at = files.state->operations + 1;
  files.state->fail_with = ENOSPC;
  CHECK_THROWS_AS(store.append(segment.number, 0, lines_of(segment, 0)), StorageError);
  const auto before = files.contents();
  CHECK_THROWS_AS(store.append(segment.number, 1, lines_of(segment, 1)), StorageError);
  CHECK_THROWS_AS(store.sync(), StorageError);
  CHECK_THROWS_AS(store.open_segment(1, small_plan[1].item_ids, small_plan[1].batches), StorageError);
  CHECK(files.contents() == before);
}

TEST_CASE("a segment is committed in the one order that a power cut cannot break") {
  const MemoryFiles files;
  run({small_plan[1]}, files);
  const std::string base = "/out/segments/000000";
  const std::string aside = "/out/segments/.tmp-000000";
  const std::string folder = "fsync folder /out/segments";
  auto segment = planned({1});
  const MemoryFiles one;
  run(segment, one);
  CHECK(one.state->record ==
        std::vector<std::string>{"mkdir /out/segments", "fsync folder /out", "create " + base + ".part",
                                 "write " + base + ".part", "create " + aside + ".jsonl", "write " + aside + ".jsonl",
                                 "fsync " + aside + ".jsonl", "rename " + base + ".jsonl", folder, "syncfs",
                                 "create " + aside + ".manifest.json", "write " + aside + ".manifest.json",
                                 "fsync " + aside + ".manifest.json", "rename " + base + ".manifest.json", folder,
                                 "unlink " + base + ".part"});
}

TEST_CASE("journals and their names are synced after the interval, and on request") {
  const MemoryFiles files;
  std::int64_t now = 0;
  SegmentStoreOptions options;
  options.now_ns = [&now] { return now; };
  SegmentStore store("/out", "plan", options, files);
  const PlannedSegment segment = planned({12})[0];  // four batches
  store.open_segment(segment.number, segment.item_ids, segment.batches);
  const auto synced = [&] {
    const auto& record = files.state->record;
    return std::count(record.begin(), record.end(), "fsync /out/segments/000000.part");
  };
  now = 4'999'999'999;
  store.append(0, 0, lines_of(segment, 0));
  CHECK(synced() == 0);
  now = 5'000'000'000;
  store.append(0, 1, lines_of(segment, 1));
  CHECK(synced() == 1);
  CHECK(files.state->record.back() == "fsync folder /out/segments");
  store.sync();
  CHECK(synced() == 1);
  now = 6'000'000'000;
  store.append(0, 2, lines_of(segment, 2));
  CHECK(synced() == 1);
  store.sync();
  CHECK(synced() == 2);
  files.cut_power(3);
  SegmentStore next("/out", "plan", {}, files);
  CHECK(next.open_segment(0, segment.item_ids, segment.batches) == std::vector<char>{1, 1, 1, 0});
  CHECK(next.totals().resumed == 9);
}

TEST_CASE("a journal with any byte changed, or cut at any byte, gives the same segments") {
  const MemoryFiles start;
  {
    SegmentStore store("/out", "plan", {}, start);
    store.open_segment(0, small_plan[0].item_ids, small_plan[0].batches);
    store.append(0, 2, lines_of(small_plan[0], 2));
    store.append(0, 0, lines_of(small_plan[0], 0));
  }
  const std::string path = "/out/segments/000000.part";
  const std::string whole = start.content(path);
  const auto expected = uninterrupted();
  std::mt19937 random(5);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const bool cut : {false, true}) {
      const MemoryFiles files;
      files.state->folders.insert("/out/segments");
      File(path, O_WRONLY | O_CREAT, files);
      files.content(path) = cut ? whole.substr(0, at) : whole;
      if (!cut) files.content(path)[at] = static_cast<char>(random());
      const Counts counts = run(small_plan, files);
      REQUIRE(files.contents() == expected);
      if (!cut && whole[at] != '\n') CHECK(counts.resumed >= 1);
    }
  }
}

TEST_CASE("a segment with a damaged manifest is computed again, with a note") {
  const auto expected = uninterrupted();
  const std::string path = "/out/segments/000002.manifest.json";
  for (std::size_t at = 0; at < expected.at(path).size(); at += 3) {
    const MemoryFiles files;
    run(small_plan, files);
    files.restart();
    if (at % 2 == 0) {
      files.content(path)[at] ^= 4;
    } else {
      files.content(path).resize(at);
    }
    CHECK(SegmentStore("/out", "plan", {}, files).notes().size() == 1);
    CHECK(run(small_plan, files).resumed == 8);
    REQUIRE(files.contents() == expected);
  }
}

TEST_CASE("a segment whose data file is missing or has another length is computed again, with a note") {
  const auto expected = uninterrupted();
  const std::string path = "/out/segments/000002.jsonl";
  for (const std::size_t length : {std::size_t{0}, expected.at(path).size() - 1, expected.at(path).size() + 1}) {
    const MemoryFiles files;
    run(small_plan, files);
    files.restart();
    files.content(path).resize(length, 'x');
    const auto notes = SegmentStore("/out", "plan", {}, files).notes();
    REQUIRE(notes.size() == 1);
    CHECK(notes[0].find(path) != std::string::npos);
    CHECK(run(small_plan, files).resumed == 8);
    REQUIRE(files.contents() == expected);
  }
  const MemoryFiles files;
  run(small_plan, files);
  files.restart();
  remove_file(path, files);
  CHECK(SegmentStore("/out", "plan", {}, files).notes().size() == 1);
  CHECK(run(small_plan, files).resumed == 8);
  CHECK(files.contents() == expected);
}

TEST_CASE("if the output folder is deleted during the run, the run ends and does not make it again") {
  const PlannedSegment& segment = small_plan[0];
  for (const bool by_sync : {true, false}) {
    const TemporaryFolder folder;
    const std::string out = folder.path() + "/out";
    make_folder(out);
    SegmentStore store(out, "plan");
    store.open_segment(0, segment.item_ids, segment.batches);
    store.append(0, 0, lines_of(segment, 0));
    std::filesystem::remove_all(out);
    const auto go_on = [&] {
      if (by_sync) return store.sync();
      for (int batch = 1; batch < 3; ++batch)
        store.append(0, batch, lines_of(segment, static_cast<std::size_t>(batch)));
    };
    CHECK_THROWS_WITH_AS(go_on(), doctest::Contains("deleted during the run"), StorageError);
    CHECK(!std::filesystem::exists(out));
  }
  const TemporaryFolder folder;
  CHECK_THROWS_AS(SegmentStore(folder.path() + "/none", "plan"), StorageError);
  CHECK(!std::filesystem::exists(folder.path() + "/none"));
}

}  // namespace
}  // namespace millrace
