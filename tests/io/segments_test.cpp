#include "io/segments.hpp"

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

#include "tests/io/memory_files.hpp"
#include "tests/io/temporary_folder.hpp"

namespace millrace {
namespace {

struct PlannedSegment {
  std::int64_t number = 0;
  std::vector<std::int64_t> item_ids;
  std::vector<std::vector<int>> batches;
};

/// Segments of two views whose pictures alternate, in batches of at most three, as a plan cuts them.
std::vector<PlannedSegment> planned(const std::vector<int>& sizes) {
  std::vector<PlannedSegment> plan;
  std::int64_t next_id = 0;
  for (const int size : sizes) {
    PlannedSegment segment;
    segment.number = static_cast<std::int64_t>(plan.size());
    for (int view = 0; view < 2; ++view) {
      std::vector<int> batch;
      for (int row = view; row < size; row += 2) {
        batch.push_back(row);
        if (batch.size() == 3) segment.batches.push_back(std::exchange(batch, {}));
      }
      if (!batch.empty()) segment.batches.push_back(batch);
    }
    for (int row = 0; row < size; ++row) segment.item_ids.push_back(next_id++);
    plan.push_back(segment);
  }
  return plan;
}

Line line_of(std::int64_t id) {
  Line line;
  line.item_id = id;
  line.ok = id % 7 != 3;
  line.reason = id % 2 == 0 ? Reason::truncated : Reason::vanished;
  line.objects = line.ok ? static_cast<int>(id % 4) : 0;
  line.json = "{\"id\": " + std::to_string(id) + ", \"state\": \"" + (line.ok ? "ok" : "failed") + "\"}";
  return line;
}

std::vector<Line> lines_of(const PlannedSegment& segment, std::size_t batch) {
  std::vector<Line> lines;
  for (const int row : segment.batches[batch]) {
    lines.push_back(line_of(segment.item_ids[static_cast<std::size_t>(row)]));
  }
  return lines;
}

/// What a run does: opens each segment, at most `open_at_once`, and appends what is missing in random order.
Counts run(const std::vector<PlannedSegment>& plan, const FileSystem& files, unsigned seed = 1,
           const std::string& out = "/out", std::size_t open_at_once = 2) {
  std::mt19937 random(seed);
  SegmentStoreOptions options;
  std::int64_t clock = 0;
  options.now_ns = [&clock] { return clock += 1'000'000'000; };
  options.sync_side_files = [&] { sync_file_system(out, files); };
  SegmentStore store(out, "plan", options, files);
  std::vector<std::pair<std::size_t, std::size_t>> waiting;
  std::size_t next = 0;
  const auto open_next = [&] {
    const PlannedSegment& segment = plan[next++];
    if (store.segment_done(segment.number)) return;
    const auto done = store.open_segment(segment.number, segment.item_ids, segment.batches);
    for (std::size_t batch = 0; batch < done.size(); ++batch) {
      if (done[batch] == 0) waiting.emplace_back(next - 1, batch);
    }
  };
  while (next < plan.size() || !waiting.empty()) {
    std::set<std::size_t> open;
    for (const auto& entry : waiting) open.insert(entry.first);
    if (next < plan.size() && (open.size() < open_at_once)) {
      open_next();
      continue;
    }
    const std::size_t pick = random() % waiting.size();
    const auto [segment, batch] = waiting[pick];
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(pick));
    auto lines = lines_of(plan[segment], batch);
    std::shuffle(lines.begin(), lines.end(), random);
    store.append(plan[segment].number, static_cast<int>(batch), lines);
  }
  return store.totals();
}

const std::vector<PlannedSegment> small_plan = planned({7, 1, 5});

std::map<std::string, std::string> uninterrupted() {
  const MemoryFiles files;
  run(small_plan, files);
  return files.contents();
}

Counts expected_counts(const std::vector<PlannedSegment>& plan) {
  Counts counts;
  for (const auto& segment : plan) {
    for (const std::int64_t id : segment.item_ids) counts.add(line_of(id).ok, line_of(id).reason, line_of(id).objects);
  }
  return counts;
}

void check_counts(const Counts& counts, const Counts& expected) {
  CHECK(counts.items == expected.items);
  CHECK(counts.ok == expected.ok);
  CHECK(counts.failed == expected.failed);
  CHECK(counts.objects == expected.objects);
}

TEST_CASE("segments hold the lines in plan order and manifests that say so") {
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

TEST_CASE("1,000 random orders of batches over several open segments give the same bytes") {
  const auto plan = planned({9, 4, 1, 12, 6});
  const MemoryFiles first;
  run(plan, first);
  for (unsigned seed = 1; seed <= 1000; ++seed) {
    const MemoryFiles files;
    run(plan, files, seed, "/out", 1 + seed % 5);
    REQUIRE(files.contents() == first.contents());
  }
}

TEST_CASE("killed at any operation, the next run gives what an uninterrupted one gives") {
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
    // The second attempt is killed as well, somewhere else.
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

TEST_CASE("after a power cut at any operation too, whatever of the unsynced bytes and names is left") {
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
      // A manifest is never there without its data.
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

TEST_CASE("a storage failure at any operation is a StorageError and the next run finishes") {
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

TEST_CASE("after a storage failure the store takes nothing more") {
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

TEST_CASE("a segment is committed in the one order that a power cut cannot turn round") {
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

TEST_CASE("journals are synced with their names when the interval is over, and when asked") {
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

TEST_CASE("work of another plan is refused where it is done, and passed over where it is not") {
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

TEST_CASE("lines of other items of the same plan are not taken, and a segment done of other items is refused") {
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

TEST_CASE("a damaged manifest has its segment computed again, with a note") {
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

TEST_CASE("a data file that is missing or of another length has its segment computed again, with a note") {
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

TEST_CASE("what the plan does not know is refused, and nothing of it is written") {
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

TEST_CASE("segments are opened by one thread while others append") {
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

TEST_CASE("an output folder deleted during the run ends the run and is not made again") {
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
  std::int64_t most = 0;
  for (std::size_t batch = 1; batch < segment.batches.size(); ++batch) {
    append(batch);
    most = std::max(most, resident_bytes());
  }
  CHECK(store.segment_done(0));
  CHECK(std::filesystem::file_size(folder.path() + "/segments/000000.jsonl") > all_bytes);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  MESSAGE("memory grew by " << most - before << " bytes; not judged under a sanitizer, which keeps what was freed");
#else
  CHECK(most - before < all_bytes / 4);
#endif
}

TEST_CASE("names of segment files are read back only where we would give them") {
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

TEST_CASE("a manifest of a newer program is refused, not recomputed") {
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
