// Fields that are side columns, from the stage that sets them to the rows next to a segment.
#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "base/half.hpp"
#include "base/json.hpp"
#include "io/results/output_contents.hpp"
#include "io/results/segments.hpp"
#include "stages/detect.hpp"
#include "stages/stage_entry.hpp"
#include "tests/io/files/temporary_folder.hpp"
#include "tests/stages/stage_fixture.hpp"

namespace millrace {

inline constexpr Field<HalfRows> picture_vector{"picture_vector", RowsOf::pictures};
inline constexpr Field<HalfRows> object_vector{"object_vector", RowsOf::objects};

/// Gives each picture a row of three numbers and each of its objects a row of two.
class Vectors final : public LaneStage {
 public:
  static constexpr const char* name = "vectors";
  struct Options {
    void visit(OptionVisitor& /*v*/) {}
  };
  static StageInfo info(const Options& /*options*/) {
    return {name, Section::lane, "rows", {&detections}, {&picture_vector, &object_vector}, {}};
  }
  Vectors(const Options& /*options*/, const StageContext& /*context*/) {}
  void run(Batch& batch) override {
    for (const auto& frame : batch.frames) {
      if (frame->failed()) continue;
      const auto code = static_cast<float>(frame->item.id);
      frame->columns.set(picture_vector, HalfRows{3, {to_f16(code), to_f16(code + 0.5F), to_f16(-code)}});
      HalfRows rows{2, {}};
      for (std::size_t i = 0; i < frame->columns.get(detections).list.size(); ++i) {
        rows.values.push_back(to_f16(code));
        rows.values.push_back(to_f16(static_cast<float>(i)));
      }
      frame->columns.set(object_vector, std::move(rows));
    }
  }
};

namespace {

std::string file(const std::string& out, const std::string& name) {
  return read_text_file(segments_folder(out) + "/" + name, 1 << 20);
}

std::vector<std::uint16_t> halves(const std::string& bytes) {
  std::vector<std::uint16_t> values;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    values.push_back(static_cast<std::uint16_t>(static_cast<unsigned char>(bytes[i]) |
                                                (static_cast<unsigned char>(bytes[i + 1]) << 8)));
  }
  return values;
}

/// The lines of four pictures after the last stage: with two objects, with none, failed, with one object.
std::vector<Line> lines_of_four(const StageContext& context) {
  std::vector<StageEntry> table = stage_table();
  table.push_back(stage_entry<Vectors>());
  const Chain chain(
      {"decode", "preprocess", "detect", "vectors", "encode"}, [](const std::string&) { return OptionValues{}; },
      table);
  Batch batch({picture(1, 0, 4), picture(2, 1, 4), picture(3, 2, 4), picture(4, 3, 4)});
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
    Detections found;
    found.list.assign(i == 0 ? 2 : i == 1 ? 0 : 1, Detection{0, 0, 8, 8, 0.5F, 0});
    batch.frames[i]->columns.set(detections, std::move(found));
  }
  batch.frames[2]->fail("decode", Reason::truncated, "cut");
  Vectors vectors({}, context);
  run_stage(*chain.find("vectors"), vectors, batch);
  const Encode encode({}, context);
  run_stage(*chain.find("encode"), encode, batch);
  std::vector<Line> lines;
  for (const auto& frame : batch.frames) {
    frame->columns.allow(nullptr);
    lines.push_back({frame->item.id, frame->columns.get(segment_line), !frame->failed(), Reason::truncated, 0});
  }
  return lines;
}

TEST_CASE("lines hold the numbers of their rows, of pictures and of objects") {
  StageFixture fixture;
  fixture.add_view_without_detector();
  const auto lines = lines_of_four(fixture.context());
  const TemporaryFolder folder;
  SegmentStore store(folder.path(), "plan");
  store.open_segment(0, {0, 1, 2, 3}, {{2, 3}, {0, 1}});
  store.append(0, 0, {lines[2], lines[3]});  // the later batch first
  store.append(0, 1, {lines[0], lines[1]});

  std::vector<nlohmann::json> read;
  for_each_line(folder.path(), [&](const SegmentLine& line) {
    read.push_back(nlohmann::json::parse(line.json));
    return true;
  });
  REQUIRE(read.size() == 4);
  CHECK(read[0]["picture_vector"] == 0);
  CHECK(read[0]["objects"][0]["object_vector"] == 0);
  CHECK(read[0]["objects"][1]["object_vector"] == 1);
  CHECK(read[1]["picture_vector"] == 1);
  CHECK(read[1]["objects"].empty());
  CHECK_FALSE(read[2].contains("picture_vector"));
  CHECK(read[3]["picture_vector"] == 2);
  CHECK(read[3]["objects"][0]["object_vector"] == 2);
  const auto f16 = [](float value) { return to_f16(value); };
  CHECK(halves(file(folder.path(), "000000.picture_vector.f16")) ==
        std::vector<std::uint16_t>{f16(0), f16(0.5F), f16(-0.0F), f16(1), f16(1.5F), f16(-1), f16(3), f16(3.5F),
                                   f16(-3)});
  CHECK(halves(file(folder.path(), "000000.object_vector.f16")) ==
        std::vector<std::uint16_t>{f16(0), f16(0), f16(0), f16(1), f16(3), f16(0)});
}

Frame frame_with(const Field<HalfRows>& field, HalfRows rows, std::size_t objects = 0) {
  Item item;
  item.path = "a.jpg";
  Frame frame(item, PlanPosition{});
  Detections found;
  found.list.assign(objects, Detection{0, 0, 8, 8, 0.5F, 0});
  frame.columns.set(detections, std::move(found));
  frame.columns.set(field, std::move(rows));
  return frame;
}

const std::vector<View> views{{"front", "", {}}};

TEST_CASE("a row with NaN or infinity fails its picture, as such a number in the line does") {
  Frame frame = frame_with(picture_vector, {2, {0, 0x7e00}});
  const auto line = nlohmann::json::parse(finish_segment_line(frame, views));
  CHECK(line["reason"] == "non_finite");
  CHECK(line["detail"].get<std::string>().find("picture_vector") != std::string::npos);
}

TEST_CASE("a line that is too long for the journal fails its picture, and the message has its length") {
  const auto max_bytes = static_cast<std::size_t>(Journal::max_line_bytes);
  Frame frame = frame_with(picture_vector, {1 << 20, std::vector<std::uint16_t>(1 << 20)});
  CHECK(finish_segment_line(frame, views).size() > (2 << 20));
  CHECK_FALSE(frame.failed());
  Frame long_frame =
      frame_with(picture_vector, {static_cast<int>(max_bytes / 2), std::vector<std::uint16_t>(max_bytes / 2)});
  const auto line = nlohmann::json::parse(finish_segment_line(long_frame, views));
  CHECK(line["reason"] == "too_large");
  CHECK(line["detail"].get<std::string>().find("the maximum is 67108864 bytes") != std::string::npos);
}

TEST_CASE("a stage that sets a wrong number of rows has an error of its own") {
  CHECK_THROWS_WITH_AS(make_segment_line(frame_with(picture_vector, {1, {0, 0}}), views),
                       doctest::Contains("'picture_vector' has one row for each picture, but was given 2"),
                       std::logic_error);
  CHECK_THROWS_WITH_AS(make_segment_line(frame_with(object_vector, {1, {0}}, 2), views),
                       doctest::Contains("'object_vector' has one row for each object, but was given 1"),
                       std::logic_error);
}

TEST_CASE("a name that no file can have is refused before the run") {
  static constexpr Field<HalfRows> bad{"Bad.Name", RowsOf::pictures};
  StageEntry entry;
  entry.name = "bad";
  entry.parse = [](const OptionValues&, const std::string&) { return StageOptions(); };
  entry.info = [](const StageOptions&, const std::string&) {
    return StageInfo{"bad", Section::frame, "", {}, {&bad}, {}};
  };
  const std::vector<StageEntry> table{entry};
  CHECK_THROWS_WITH_AS(Chain(
                           {"bad"}, [](const std::string&) { return OptionValues{}; }, table),
                       doctest::Contains("field 'Bad.Name' of stage 'bad' is a side column"), std::logic_error);
}

}  // namespace
}  // namespace millrace
