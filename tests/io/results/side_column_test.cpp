// Side columns, alone and in the segment store: after kills, power cuts and damage, like the tests of segments.
#include "io/results/side_column.hpp"
#include "base/json.hpp"

#include <doctest/doctest.h>

#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/half.hpp"
#include "io/results/output_contents.hpp"
#include "io/results/segments.hpp"
#include "tests/io/files/memory_files.hpp"
#include "tests/io/files/temporary_folder.hpp"
#include "tests/io/results/segment_plan.hpp"

namespace millrace {
namespace {

using namespace segment_plan;

constexpr int picture_width = 3, object_width = 2;

std::uint16_t value_of(std::int64_t id, int object, int index) {
  return to_f16(static_cast<float>(id) + static_cast<float>(object) / 8 - static_cast<float>(index) / 64);
}

std::vector<std::uint16_t> row_of(std::int64_t id, int object, int width) {
  std::vector<std::uint16_t> row;
  for (int i = 0; i < width; ++i) row.push_back(value_of(id, object, i));
  return row;
}

/// A line in which every good picture has a row, and each of its objects has one in another column.
Line line_with_rows(std::int64_t id) {
  Line line = line_of(id);
  if (!line.ok) return line;
  JsonWriter json;
  json.begin_object().key("id").value(id).key("path").value("").key("width").value(1).key("height").value(1);
  json.key("view").value("a").key("state").value("ok");
  write_row("picture_rows", row_of(id, 0, picture_width), json.key("picture_rows"));
  json.key("objects").begin_array();
  for (int object = 0; object < line.objects; ++object) {
    json.begin_object();
    write_row("rows", row_of(id, object, object_width), json.key("rows"));
    json.end_object();
  }
  json.end_array().end_object();
  line.json = json.take();
  return line;
}

Counts run_with_rows(const MemoryFiles& files, unsigned seed = 1) {
  return run(small_plan, files, seed, "/out", 2, line_with_rows);
}

std::map<std::string, std::string> uninterrupted_with_rows() {
  const MemoryFiles files;
  run_with_rows(files);
  return files.contents();
}

std::string bytes_of(const std::vector<std::uint16_t>& row) {
  std::string bytes;
  for (const std::uint16_t value : row) {
    bytes += static_cast<char>(value & 255);
    bytes += static_cast<char>(value >> 8);
  }
  return bytes;
}

TEST_CASE("names of side columns") {
  for (const char* good : {"e", "embedding", "rows", "r", "r1a", "x_2"}) CHECK(is_column_name(good));
  for (const char* bad : {"", "1a", "_a", "A", "a.b", "a/b", "r1", "r27", "a b"}) CHECK_FALSE(is_column_name(bad));
  CHECK(is_column_name(std::string(64, 'a')));
  CHECK_FALSE(is_column_name(std::string(65, 'a')));
}

TEST_CASE("names of files: side columns next to revisions, data and manifests") {
  for (const SegmentFile& file :
       {SegmentFile{7, 0, SegmentFile::Kind::column, "embedding"}, SegmentFile{7, 2, SegmentFile::Kind::column, "rows"},
        SegmentFile{7, 0, SegmentFile::Kind::column, "rows"}}) {
    const auto read = SegmentFile::from_name(file.name());
    REQUIRE(read);
    CHECK(read->name() == file.name());
    CHECK(read->kind == SegmentFile::Kind::column);
    CHECK(read->revision == file.revision);
    CHECK(read->column == file.column);
  }
  CHECK(SegmentFile{7, 2, SegmentFile::Kind::column, "rows"}.name() == "000007.r2.rows.f16");
  for (const char* name : {"000007..f16", "000007.f16", "000007.r1.f16", "000007.A.f16", "7.a.f16", "000007.a.b.f16"})
    CHECK_FALSE(SegmentFile::from_name(name));
}

TEST_CASE("a row that is empty or not finite is refused") {
  JsonWriter json;
  CHECK_THROWS_WITH_AS(write_row("a", std::vector<std::uint16_t>{0, 0x7c00}, json), doctest::Contains("not finite"),
                       std::domain_error);
  CHECK_THROWS_AS(write_row("a", std::vector<std::uint16_t>{0xfe01}, json), std::domain_error);
  CHECK_THROWS_AS(write_row("a", {}, json), std::invalid_argument);
  CHECK_NOTHROW(write_row("a", std::vector<std::uint16_t>{0x7bff, 0xfbff, 0x8000}, json));
}

TEST_CASE("rows are moved out of lines, which keep their numbers; lines without rows do not change") {
  const MemoryFiles files;
  ColumnWriter columns("/out", 5, files);
  CHECK(columns.take_rows("{\"id\": 0}") == "{\"id\": 0}");
  CHECK(columns.commit().empty());
  CHECK(files.contents().empty());

  ColumnWriter writer("/out", 5, files);
  const auto line = line_with_rows(2);  // two objects
  CHECK(nlohmann::json::parse(writer.take_rows(line.json)) ==
        nlohmann::json::parse(R"({"id": 2, "path": "", "width": 1, "height": 1, "view": "a", "state": "ok",
                                  "picture_rows": 0, "objects": [{"rows": 0}, {"rows": 1}]})"));
  CHECK(nlohmann::json::parse(writer.take_rows(line_with_rows(1).json))["objects"][0]["rows"] == 2);
  const auto written = writer.commit();
  REQUIRE(written.size() == 2);
  CHECK(written[0].name == "picture_rows");
  CHECK(written[0].rows == 2);
  CHECK(written[0].width == picture_width);
  CHECK(written[1].rows == 3);
  CHECK(files.contents() ==
        std::map<std::string, std::string>{
            {"/out/000005.picture_rows.f16",
             bytes_of(row_of(2, 0, picture_width)) + bytes_of(row_of(1, 0, picture_width))},
            {"/out/000005.rows.f16", bytes_of(row_of(2, 0, object_width)) + bytes_of(row_of(2, 1, object_width)) +
                                         bytes_of(row_of(1, 0, object_width))}});
}

TEST_CASE("rows of two widths, and lines with a damaged row, are errors") {
  const MemoryFiles files;
  ColumnWriter columns("/out", 5, files);
  const auto line = [](std::size_t width) {
    JsonWriter json;
    write_row("a", std::vector<std::uint16_t>(width), json);
    return json.take();
  };
  columns.take_rows(line(4));
  CHECK_THROWS_WITH_AS(columns.take_rows(line(5)), doctest::Contains("rows of 4 and of 5 numbers in segment 5"),
                       std::runtime_error);
  CHECK_THROWS_AS(columns.take_rows("{\"a\": \x1f"
                                    "a AAAA}"),
                  std::invalid_argument);
  CHECK_THROWS_AS(columns.take_rows("{\"a\": \x1f"
                                    "aAAAA\x1f}"),
                  std::invalid_argument);
  CHECK_THROWS_AS(columns.take_rows("{\"a\": \x1f"
                                    "../a AAAA\x1f}"),
                  std::invalid_argument);
}

TEST_CASE("rows of segments do not depend on the order of batches, and manifests list them") {
  const auto expected = uninterrupted_with_rows();
  for (unsigned seed = 2; seed < 10; ++seed) {
    const MemoryFiles files;
    run_with_rows(files, seed);
    CHECK(files.contents() == expected);
  }
  for (const auto& segment : small_plan) {
    const std::string base = "/out/segments/" + SegmentFile{segment.number, 0, SegmentFile::Kind::data}.name();
    const std::string stem = base.substr(0, base.size() - 6);
    std::string pictures, objects;
    for (const std::int64_t id : segment.item_ids) {
      const Line line = line_of(id);
      if (!line.ok) continue;
      pictures += bytes_of(row_of(id, 0, picture_width));
      for (int object = 0; object < line.objects; ++object) objects += bytes_of(row_of(id, object, object_width));
    }
    CHECK(expected.at(stem + ".picture_rows.f16") == pictures);
    if (!objects.empty()) CHECK(expected.at(stem + ".rows.f16") == objects);
    const auto manifest = Manifest::from_text(expected.at(stem + ".manifest.json"));
    REQUIRE(manifest);
    CHECK(manifest->columns.size() == (objects.empty() ? 1 : 2));
    CHECK(manifest->columns[0].bytes() == static_cast<std::int64_t>(pictures.size()));
    CHECK(manifest->columns[0].xxh3 == xxh3_64_hex(pictures));
    const auto json = nlohmann::json::parse(expected.at(stem + ".manifest.json"));
    CHECK(json["columns"][0]["bytes"] == pictures.size());
  }
}

TEST_CASE("after a kill at any operation, the next run writes the same lines and rows") {
  const auto expected = uninterrupted_with_rows();
  int kills = 0;
  for (bool killed = true; killed; ++kills) {
    CAPTURE(kills);
    const MemoryFiles files;
    files.state->kill_at = kills + 1;
    killed = false;
    try {
      run_with_rows(files);
    } catch (const ProcessKilled&) {
      killed = true;
    }
    files.restart();
    files.state->kill_at = 1 + kills * 7 % 60;
    try {
      run_with_rows(files, 2);
    } catch (const ProcessKilled&) {
    }
    files.restart();
    check_counts(run_with_rows(files, 3), expected_counts(small_plan));
    REQUIRE(files.contents() == expected);
  }
  CHECK(kills > 80);
}

TEST_CASE("after a power cut a manifest never exists without its rows") {
  const auto expected = uninterrupted_with_rows();
  int cuts = 0;
  for (bool killed = true; killed; ++cuts) {
    for (unsigned seed = 0; seed < 8; ++seed) {
      CAPTURE(cuts);
      CAPTURE(seed);
      const MemoryFiles files;
      files.state->kill_at = cuts + 1;
      killed = false;
      try {
        run_with_rows(files, seed);
      } catch (const ProcessKilled&) {
        killed = true;
      }
      files.cut_power(seed);
      for (const auto& [path, content] : files.contents()) {
        if (!path.ends_with(".manifest.json") || path.find(".tmp-") != std::string::npos) continue;
        const auto manifest = Manifest::from_text(content);
        REQUIRE(manifest);
        for (const SideColumn& column : manifest->columns) {
          const SegmentFile file{manifest->segment, 0, SegmentFile::Kind::column, column.name};
          REQUIRE(xxh3_64_hex(files.content("/out/segments/" + file.name())) == column.xxh3);
        }
      }
      run_with_rows(files, seed + 1);
      REQUIRE(files.contents() == expected);
    }
  }
}

TEST_CASE("a journal whose rows are changed or cut at any byte gives the same segments") {
  const auto& segment = small_plan[0];
  const MemoryFiles start;
  {
    SegmentStore store("/out", "plan", {}, start);
    store.open_segment(0, segment.item_ids, segment.batches);
    store.append(0, 0, lines_of(segment, 0, line_with_rows));
  }
  const std::string path = "/out/segments/000000.part";
  const std::string whole = start.content(path);
  const auto expected = uninterrupted_with_rows();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const bool cut : {false, true}) {
      const MemoryFiles files;
      files.state->folders.insert("/out/segments");
      File(path, O_WRONLY | O_CREAT, files);
      files.content(path) = cut ? whole.substr(0, at) : whole;
      if (!cut) files.content(path)[at] ^= 1;
      run_with_rows(files);
      REQUIRE(files.contents() == expected);
    }
  }
}

TEST_CASE("a segment whose side file is missing or has another length is computed again, with a note") {
  const auto expected = uninterrupted_with_rows();
  const std::string path = "/out/segments/000000.rows.f16";
  for (const bool missing : {true, false}) {
    const MemoryFiles files;
    run_with_rows(files);
    files.restart();
    if (missing) remove_file(path, files);
    if (!missing) files.content(path).pop_back();
    const auto notes = SegmentStore("/out", "plan", {}, files).notes();
    REQUIRE(notes.size() == 1);
    CHECK(notes[0].find(path) != std::string::npos);
    CHECK(run_with_rows(files).resumed == 6);
    REQUIRE(files.contents() == expected);
  }
}

TEST_CASE("verify reads every byte of side columns; reading lines does not") {
  const TemporaryFolder folder;
  const std::string& out = folder.path();
  run(small_plan, real_files, 1, out, 2, line_with_rows);
  CHECK(verify_segments(out).empty());
  const std::string path = segments_folder(out) + "/000000.rows.f16";
  std::string bytes = read_text_file(path, 1 << 20);
  bytes[3] ^= 1;
  write_durably(segments_folder(out), "000000.rows.f16", bytes);
  const auto damaged = verify_segments(out);
  REQUIRE(damaged.size() == 1);
  CHECK(damaged[0].segment == 0);
  CHECK(damaged[0].problem.find(path + "' has hash") != std::string::npos);
  CHECK(read_contents(out, "plan", {}).problems.empty());
  int lines = 0;
  for_each_line(out, [&](const SegmentLine& line) {
    ++lines;
    return line.revision == 0;
  });
  CHECK(lines == 13);
  write_durably(segments_folder(out), "000000.rows.f16", bytes + "x");
  REQUIRE(read_contents(out, "plan", {}).problems.size() == 1);
  CHECK(read_contents(out, "plan", {}).problems[0].find(path) != std::string::npos);
}

TEST_CASE("a line of a revision says which revision has its rows") {
  const TemporaryFolder folder;
  const std::string& out = folder.path();
  run(small_plan, real_files, 1, out, 2, line_with_rows);
  const std::string data = "{\"id\": 2, \"state\": \"ok\", \"picture_rows\": 0}\n";
  const std::string rows = bytes_of(row_of(2, 5, picture_width));
  Manifest manifest;
  manifest.revision = 1;
  manifest.plan_hash = "plan";
  manifest.counts.add(true, Reason::internal, 0);
  manifest.bytes = static_cast<std::int64_t>(data.size());
  manifest.xxh3 = xxh3_64_hex(data);
  manifest.columns = {{"picture_rows", 1, picture_width, xxh3_64_hex(rows)}};
  write_durably(segments_folder(out), "000000.r1.jsonl", data);
  write_durably(segments_folder(out), "000000.r1.picture_rows.f16", rows);
  write_durably(segments_folder(out), "000000.r1.manifest.json", manifest.to_text());
  CHECK(verify_segments(out).empty());
  std::vector<int> revisions;
  for_each_line(out, [&](const SegmentLine& line) {
    revisions.push_back(line.revision);
    return line.item_id < 3;
  });
  CHECK(revisions == std::vector<int>{0, 0, 1, 0});
  // The store does not touch files of revisions.
  SegmentStore(out, "plan");
  CHECK(verify_segments(out).empty());
}

}  // namespace
}  // namespace millrace
