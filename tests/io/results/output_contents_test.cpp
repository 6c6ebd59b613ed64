#include "io/results/output_contents.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "io/results/run_folder.hpp"
#include "io/results/segments.hpp"
#include "tests/io/files/temporary_folder.hpp"
#include "tests/io/results/segment_line.hpp"

namespace millrace {
namespace {

FrameRecord frame_of(std::int64_t id) {
  FrameRecord frame;
  frame.id = id;
  frame.path = "a/\xff\n" + std::to_string(id) + ".jpg";
  frame.width = 4;
  frame.height = 3;
  frame.view = "front";
  frame.failed = id % 3 == 1;
  if (frame.failed) {
    frame.reason = Reason::corrupt_data;
    frame.detail = "a \"failed\" picture";
  } else {
    for (int i = 0; i < id % 3; ++i) {
      Object object;
      object.width = object.height = 2;
      object.name = "failed";
      frame.objects.push_back(object);
    }
  }
  return frame;
}

Line line_of(const FrameRecord& frame) {
  return {frame.id, segment_line_of(frame), !frame.failed, frame.reason, static_cast<int>(frame.objects.size())};
}

/// Segments 0 to 2 have four items each and are done. Segment 3 has only one batch of two, in its journal.
void fill(const std::string& out) {
  SegmentStore store(out, "plan");
  for (std::int64_t segment = 0; segment < 4; ++segment) {
    const std::int64_t first = segment * 4;
    store.open_segment(segment, {first, first + 1, first + 2, first + 3}, {{2, 0}, {1, 3}});
    store.append(segment, 1, {line_of(frame_of(first + 3)), line_of(frame_of(first + 1))});
    if (segment < 3) store.append(segment, 0, {line_of(frame_of(first)), line_of(frame_of(first + 2))});
  }
  store.sync();
}

/// Writes a revision, as a later retry does.
void revise(const std::string& out, std::int64_t segment, int revision, const std::vector<FrameRecord>& frames) {
  Manifest manifest;
  manifest.segment = segment;
  manifest.revision = revision;
  manifest.plan_hash = "plan";
  std::string data;
  for (const FrameRecord& frame : frames) {
    data += segment_line_of(frame) + "\n";
    manifest.counts.add(!frame.failed, frame.reason, static_cast<std::int64_t>(frame.objects.size()));
  }
  manifest.bytes = static_cast<std::int64_t>(data.size());
  manifest.xxh3 = xxh3_64_hex(data);
  const std::string folder = segments_folder(out);
  write_durably(folder, SegmentFile{segment, revision, SegmentFile::Kind::data}.name(), data);
  write_durably(folder, SegmentFile{segment, revision, SegmentFile::Kind::manifest}.name(), manifest.to_text());
}

FrameRecord repaired(std::int64_t id, int objects) {
  FrameRecord frame = frame_of(id);
  frame.failed = false;
  frame.objects.resize(static_cast<std::size_t>(objects));
  return frame;
}

std::vector<std::int64_t> failed_ids(const std::string& out) {
  std::vector<std::int64_t> ids;
  for_each_failed(out, [&](const FrameRecord& frame) { ids.push_back(frame.id); });
  return ids;
}

TEST_CASE("the contents of an unfinished folder: done, journaled, failed, locked") {
  const TemporaryFolder out;
  const FolderLock lock(out.path());
  fill(out.path());
  const OutputContents contents = read_contents(out.path(), "plan", 16);
  CHECK(contents.done_segments == 3);
  CHECK(contents.counts.items == 12);
  CHECK(contents.counts.ok == 8);
  CHECK(contents.counts.failed == std::map<Reason, std::int64_t>{{Reason::corrupt_data, 4}});
  CHECK(contents.counts.failed_items() == 4);
  CHECK(contents.counts.objects == 8);
  CHECK(contents.open_segments == std::vector<std::int64_t>{3});
  CHECK(contents.journaled_items == 2);
  REQUIRE(contents.locked_by);
  CHECK(contents.locked_by->pid == this_process().pid);
  CHECK(!contents.balanced());
  CHECK(contents.problems.empty());
  CHECK(read_contents(out.path(), "", 12).balanced());
  CHECK(!read_contents(out.path(), "plan", std::nullopt).balanced());
  CHECK_THROWS_AS(read_contents(out.path(), "other", 12), OutputMismatchError);
  CHECK_THROWS_AS(read_contents(out.path() + "/none", "plan", 12), StorageError);
}

TEST_CASE("lines come in plan order and stop on request") {
  const TemporaryFolder out;
  fill(out.path());
  std::vector<std::string> lines;
  for_each_line(out.path(), [&](const SegmentLine& line) {
    CHECK(line.segment == line.item_id / 4);
    CHECK(parse_frame(line.json).id == line.item_id);
    lines.emplace_back(line.json);
    return true;
  });
  REQUIRE(lines.size() == 12);
  for (std::size_t i = 0; i < lines.size(); ++i)
    CHECK(lines[i] == segment_line_of(frame_of(static_cast<std::int64_t>(i))));
  int taken = 0;
  for_each_line(out.path(), [&](const SegmentLine&) { return ++taken < 6; });
  CHECK(taken == 6);
}

TEST_CASE("failed items are listed with path, reason and detail, but not items with the word in their names") {
  const TemporaryFolder out;
  fill(out.path());
  CHECK(failed_ids(out.path()) == std::vector<std::int64_t>{1, 4, 7, 10});
  for_each_failed(out.path(), [&](const FrameRecord& frame) {
    CHECK(frame.path == frame_of(frame.id).path);
    CHECK(frame.reason == Reason::corrupt_data);
    CHECK(frame.detail == "a \"failed\" picture");
  });
}

TEST_CASE("the highest revision of an item counts") {
  const TemporaryFolder out;
  fill(out.path());
  revise(out.path(), 1, 1, {repaired(4, 5), frame_of(7)});
  revise(out.path(), 1, 2, {repaired(7, 1)});
  // A revision without its manifest does not exist.
  write_durably(segments_folder(out.path()), "000000.r1.jsonl", segment_line_of(repaired(1, 9)) + "\n");
  CHECK(failed_ids(out.path()) == std::vector<std::int64_t>{1, 10});
  const OutputContents contents = read_contents(out.path(), "plan", 12);
  CHECK(contents.counts.items == 12);
  CHECK(contents.counts.ok == 10);
  CHECK(contents.counts.objects == 8 + 5 + 1);
  CHECK(contents.balanced());
  std::vector<std::int64_t> ids;
  for_each_line(out.path(), [&](const SegmentLine& line) {
    ids.push_back(line.item_id);
    if (line.item_id == 4) CHECK(parse_frame(line.json).objects.size() == 5);
    return true;
  });
  CHECK(ids == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  CHECK(verify_segments(out.path()).empty());
  // A store that opens this folder does not count items twice.
  CHECK(SegmentStore(out.path(), "plan").totals().items == 12);
}

TEST_CASE("verify finds a changed byte and a shorter, longer or missing file, and names the items") {
  const TemporaryFolder out;
  fill(out.path());
  CHECK(verify_segments(out.path()).empty());
  const std::string folder = segments_folder(out.path());
  const std::string name = "000001.jsonl";
  const std::string data = read_text_file(folder + "/" + name, 1 << 20);
  const auto check_damaged = [&] {
    const auto damaged = verify_segments(out.path());
    REQUIRE(damaged.size() == 1);
    CHECK(damaged[0].segment == 1);
    CHECK(damaged[0].first_item == 4);
    CHECK(damaged[0].last_item == 7);
    CHECK(damaged[0].problem.find(name) != std::string::npos);
    int lines = 0;
    const auto count = [&](const SegmentLine&) { return ++lines > 0; };
    CHECK_THROWS_WITH_AS(for_each_line(out.path(), count), doctest::Contains(name.c_str()), ResultsDamaged);
    CHECK(lines == 4);  // the lines of the segment before it
    return damaged[0].problem;
  };
  // A segment that the next run computes again is not counted as done. The user has to delete nothing.
  const auto check_made_again = [&] {
    const std::string problem = check_damaged();
    CHECK(problem.find("repeat the run") != std::string::npos);
    CHECK(problem.find("delete") == std::string::npos);
    const OutputContents contents = read_contents(out.path(), "plan", 12);
    CHECK(contents.problems == std::vector{problem});
    CHECK(contents.done_segments == 2);
    CHECK(contents.counts.items == 8);
  };
  for (std::size_t at = 0; at < data.size(); at += 11) {
    std::string changed = data;
    changed[at] ^= 1;
    write_durably(folder, name, changed);
    CHECK(check_damaged().find("delete '" + folder + "/000001.manifest.json'") != std::string::npos);
    CHECK(read_contents(out.path(), "plan", 12).problems.empty());
  }
  for (const std::string& changed : {data + "\n", data.substr(0, data.size() - 1), std::string()}) {
    write_durably(folder, name, changed);
    check_made_again();
    CHECK_THROWS_WITH_AS(for_each_line(out.path(), [](const SegmentLine&) { return true; }),
                         doctest::Contains("millrace status --verify"), ResultsDamaged);
  }
  remove_file(folder + "/" + name);
  check_made_again();
  write_durably(folder, name, data);
  CHECK(verify_segments(out.path()).empty());
}

TEST_CASE("a damaged manifest is a problem in the contents and for verify") {
  const TemporaryFolder out;
  fill(out.path());
  const std::string folder = segments_folder(out.path());
  write_durably(folder, "000002.manifest.json", "{\"schema\":1");
  const OutputContents contents = read_contents(out.path(), "plan", 8);
  CHECK(contents.counts.items == 8);
  REQUIRE(contents.problems.size() == 1);
  CHECK(contents.problems[0].find("000002.manifest.json") != std::string::npos);
  CHECK(!contents.balanced());
  REQUIRE(verify_segments(out.path()).size() == 1);
  CHECK(verify_segments(out.path())[0].segment == 2);
  CHECK_THROWS_WITH_AS(for_each_line(out.path(), [](const SegmentLine&) { return true; }),
                       doctest::Contains("000002.manifest.json"), ResultsDamaged);
  CHECK_THROWS_AS(for_each_failed(out.path(), [](const FrameRecord&) {}), ResultsDamaged);
}

TEST_CASE("lines longer than one read, and lines without objects, are complete") {
  const TemporaryFolder out;
  SegmentStore store(out.path(), "plan");
  std::vector<Line> lines;
  for (std::int64_t id = 0; id < 4; ++id) {
    const std::string filler(static_cast<std::size_t>(id) * 1'500'000, 'x');
    lines.push_back({id, "{\"id\": " + std::to_string(id) + ", \"x\": \"" + filler + "\"}", true, Reason::internal, 0});
  }
  store.open_segment(0, {0, 1, 2, 3}, {{0, 1, 2, 3}});
  store.append(0, 0, lines);
  std::size_t next = 0;
  for_each_line(out.path(), [&](const SegmentLine& line) {
    CHECK(line.json == lines[next].json);
    ++next;
    return true;
  });
  CHECK(next == 4);
}

TEST_CASE("after the clock was set back, the last run is still the newest") {
  const TemporaryFolder out;
  const std::chrono::system_clock::time_point start{std::chrono::seconds{1795240140}};
  const auto newest = [&] { return out.path() + "/runs/" + attempts_of(out.path()).back(); };
  const RunFolder first(out.path(), start);
  for (const int back_s : {3600, 7200, 0}) {
    const RunFolder next(out.path(), start - std::chrono::seconds(back_s));
    CHECK(next.path() == newest());
  }
  CHECK(newest() == out.path() + "/runs/20261121T054900Z-4");
  const RunFolder later(out.path(), start + std::chrono::seconds(1));
  CHECK(newest() == later.path());
  CHECK(later.path() == out.path() + "/runs/20261121T054901Z-1");
  // Nobody has made so many attempts.
  std::filesystem::create_directory(out.path() + "/runs/20991231T235959Z-2147483647");
  CHECK(RunFolder(out.path(), start).path() == out.path() + "/runs/20261121T054900Z-5");
}

TEST_CASE("each run has its own folder, also in the same second") {
  const TemporaryFolder out;
  const std::chrono::system_clock::time_point start{std::chrono::seconds{1795240140}};
  RunFolder first(out.path(), start);
  const RunFolder second(out.path(), start);
  CHECK(first.path() == out.path() + "/runs/20261121T054900Z-1");
  CHECK(second.path() == out.path() + "/runs/20261121T054900Z-2");
  first.write_run("{}");
  first.write_report("{\"done\": 1}");
  first.add_error("{\"id\": 1}");
  CHECK(read_text_file(first.path() + "/errors.jsonl", 100) == "{\"id\": 1}\n");
  first.add_error("{\"id\": 2}");
  CHECK(read_text_file(first.path() + "/errors.jsonl", 100) == "{\"id\": 1}\n{\"id\": 2}\n");
  CHECK(read_text_file(first.path() + "/report.json", 100) == "{\"done\": 1}");
  CHECK(read_text_file(first.path() + "/run.json", 100) == "{}");
  CHECK_THROWS_AS(first.add_error("{\n}"), std::invalid_argument);
  // The next run removes the temporary files of a killed one.
  write_durably(out.path() + "/runs", "a file of the user", "x");
  write_durably(first.path(), ".tmp-report.json", "{");
  const RunFolder third(out.path(), start);
  CHECK_FALSE(file_exists(first.path() + "/.tmp-report.json"));
  CHECK(file_exists(first.path() + "/report.json"));
  CHECK_THROWS_AS(RunFolder(out.path() + "/none", start), StorageError);
}

}  // namespace
}  // namespace millrace
