#include "stages/encode.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <limits>

#include "stages/class_map.hpp"
#include "stages/sinks/sink.hpp"
#include "tests/stages/sinks/sink_world.hpp"

namespace millrace {
namespace {

using World = SinkWorld;

TEST_CASE("each frame's line, of failed frames too") {
  World world;
  Batch batch({frame_with_object(), picture(1, 1, 2)});
  batch.frames[1]->fail("decode", Reason::truncated, "the data end at row 12 of 64");
  Encode({}, world.context()).run(batch);
  CHECK(batch.frames[0]->columns.get(segment_line) ==
        R"({"id": 0, "path": "picture0.png", "width": 64, "height": 64, "view": "all", "state": "ok", )"
        R"("objects": [{"box": [0, 0, 32, 64], "score": 0.5, "class": 1, )"
        R"("rle": {"size": [64, 64], "counts": "0PP2PP2"}, "iou": 0.75, "area": 2048}]})");
  CHECK(batch.frames[1]->columns.get(segment_line) ==
        R"({"id": 1, "path": "picture1.png", "width": 64, "height": 64, "view": "all", "state": "failed", )"
        R"("reason": "truncated", "detail": "the data end at row 12 of 64"})");
}

TEST_CASE("a frame done in halves says so; one without detection has no objects") {
  World world;
  const auto frame = picture(1);
  frame->split = true;
  const auto line = line_of(*frame, world.context());
  CHECK(line["exec"] == "split");
  CHECK_FALSE(line.contains("objects"));
}

TEST_CASE("NaN, which JSON lacks, fails the frame, not the batch") {
  World world;
  Batch batch({frame_with_object(std::numeric_limits<float>::quiet_NaN()), frame_with_object(0.5F, 1)});
  Encode({}, world.context()).run(batch);
  CHECK(batch.frames[0]->failure->reason == Reason::non_finite);
  CHECK(nlohmann::json::parse(batch.frames[0]->columns.get(segment_line))["reason"] == "non_finite");
  CHECK(nlohmann::json::parse(batch.frames[1]->columns.get(segment_line))["state"] == "ok");
}

TEST_CASE("a class map with too many instances for a line fails the frame, not the batch") {
  constexpr int side = 2200;
  const std::shared_ptr<std::uint8_t[]> dots(new std::uint8_t[std::size_t{side} * side]());
  for (std::size_t i = 0; i < std::size_t{side} * side; ++i) dots[i] = i % 2 == 0 && i / side % 2 == 0 ? 1 : 0;
  ClassMap map;
  map.size = {side, 1, side};
  map.names = {"background", "dot"};
  map.labels = std::make_shared<LabelsInMemory>(dots, std::size_t{side} * side);
  World world;
  Batch batch({picture(0), picture(1)});
  batch.frames[1]->columns.set(class_map, map);
  map.instances = 1;
  batch.frames[0]->columns.set(class_map, map);
  Encode({}, world.context()).run(batch);
  CHECK(nlohmann::json::parse(batch.frames[0]->columns.get(segment_line))["reason"] == "too_large");
  CHECK(nlohmann::json::parse(batch.frames[1]->columns.get(segment_line))["state"] == "ok");
}

TEST_CASE("encode.format: side files that were asked for, of frames that did not fail") {
  for (const std::vector<std::string>& format :
       std::vector<std::vector<std::string>>{{}, {"coco"}, {"png"}, {"overlay"}, {"overlay", "png"}}) {
    World world;
    Batch batch({frame_with_object(), frame_with_object(0.5F, 1)});
    batch.frames[1]->fail("detect", Reason::model_failed, "no");
    Encode(with_format(format), world.context()).run(batch);
    const auto asked = [&](const char* kind) { return std::find(format.begin(), format.end(), kind) != format.end(); };
    CHECK(world.has("overlay/picture0.png.jpg") == asked("overlay"));
    CHECK(world.has("labels/picture0.png.png") == asked("png"));
    CHECK_FALSE(world.has("overlay/picture1.png.jpg"));
    CHECK_FALSE(world.has("labels/picture1.png.png"));
  }
  CHECK_THROWS_WITH_AS(Encode::info(with_format({"png", "bmp"})),
                       doctest::Contains("encode.format takes coco, overlay"), UsageError);
}

TEST_CASE("a picture that fails in one sink, or in its line, leaves no file of another") {
  World world;
  Batch batch({frame_with_object(std::numeric_limits<float>::quiet_NaN()), frame_with_object(0.5F, 1)});
  batch.frames[1]->columns.drop(pixels);  // the overlay needs them
  Encode(with_format({"png", "overlay"}), world.context()).run(batch);
  CHECK(batch.frames[0]->failed());
  CHECK(batch.frames[1]->failed());
  CHECK_FALSE(world.has("labels"));
  CHECK_FALSE(world.has("overlay"));
}

TEST_CASE("the help of encode.format names every sink") {
  const std::string help = describe_options<Encode::Options>().front().help;
  // Sinks of users may follow.
  CHECK(help.find("sinks, in addition to the segments: coco, overlay, png (label maps)") == 0);
  for (const auto& sink : sink_table()) CHECK(help.find(sink.name) != std::string::npos);
}

}  // namespace
}  // namespace millrace
