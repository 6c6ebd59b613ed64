#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/results/segments.hpp"
#include "tests/io/files/memory_files.hpp"

/// Plans and runs over them, for the tests of the segment store.
namespace millrace::segment_plan {

struct PlannedSegment {
  std::int64_t number = 0;
  std::vector<std::int64_t> item_ids;
  std::vector<std::vector<int>> batches;
};

/// Segments whose pictures alternate between two views, in batches of at most three, as a plan cuts them.
inline std::vector<PlannedSegment> planned(const std::vector<int>& sizes) {
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

inline Line line_of(std::int64_t id) {
  Line line;
  line.item_id = id;
  line.ok = id % 7 != 3;
  line.reason = id % 2 == 0 ? Reason::truncated : Reason::vanished;
  line.objects = line.ok ? static_cast<int>(id % 4) : 0;
  line.json = "{\"id\": " + std::to_string(id) + ", \"state\": \"" + (line.ok ? "ok" : "failed") + "\"}";
  return line;
}

using LineOf = Line (*)(std::int64_t id);

inline std::vector<Line> lines_of(const PlannedSegment& segment, std::size_t batch, LineOf make = line_of) {
  std::vector<Line> lines;
  for (const int row : segment.batches[batch]) {
    lines.push_back(make(segment.item_ids[static_cast<std::size_t>(row)]));
  }
  return lines;
}

/// Works like a run: opens segments, at most `open_at_once` at a time, and appends missing batches in random order.
inline Counts run(const std::vector<PlannedSegment>& plan, const FileSystem& files, unsigned seed = 1,
                  const std::string& out = "/out", std::size_t open_at_once = 2, LineOf make = line_of) {
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
    auto lines = lines_of(plan[segment], batch, make);
    std::shuffle(lines.begin(), lines.end(), random);
    store.append(plan[segment].number, static_cast<int>(batch), lines);
  }
  return store.totals();
}

inline const std::vector<PlannedSegment> small_plan = planned({7, 1, 5});

inline std::map<std::string, std::string> uninterrupted() {
  const MemoryFiles files;
  run(small_plan, files);
  return files.contents();
}

inline Counts expected_counts(const std::vector<PlannedSegment>& plan) {
  Counts counts;
  for (const auto& segment : plan) {
    for (const std::int64_t id : segment.item_ids) counts.add(line_of(id).ok, line_of(id).reason, line_of(id).objects);
  }
  return counts;
}

inline void check_counts(const Counts& counts, const Counts& expected) {
  CHECK(counts.items == expected.items);
  CHECK(counts.ok == expected.ok);
  CHECK(counts.failed == expected.failed);
  CHECK(counts.objects == expected.objects);
}

}  // namespace millrace::segment_plan
