#include "stages/encode.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "io/sinks/image_write.hpp"
#include "tests/io/decode/decode_inputs.hpp"
#include "tests/io/files/temporary_folder.hpp"
#include "tests/stages/surroundings.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;

Encode::Options with_format(const std::vector<std::string>& format) {
  return parse_options<Encode::Options>("encode", {{"format", format}});
}

// A picture with one object that fills its left half.
std::shared_ptr<Frame> frame_with_object(float score = 0.5F, int slot = 0) {
  auto frame = picture(200, slot, 2);
  Detections found;
  found.list.push_back({0, 0, side / 2, side, score, 1});
  frame->columns.set(detections, std::move(found));
  frame->columns.set(masks, {Mask{{0, side * side / 2, side * side / 2}, side, side, side * side / 2, 0.75F}});
  return frame;
}

struct World : Surroundings {
  World() {
    output_folder = folder.path();
    input_root = folder.path();
    add_view_without_detector();
  }
  bool has(const std::string& file) const { return fs::exists(folder.path() + "/" + file); }
  TemporaryFolder folder;
};

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

TEST_CASE("a number that JSON lacks fails the frame, not the batch") {
  World world;
  Batch batch({frame_with_object(std::numeric_limits<float>::quiet_NaN()), frame_with_object(0.5F, 1)});
  Encode({}, world.context()).run(batch);
  CHECK(batch.frames[0]->failure->reason == Reason::non_finite);
  CHECK(nlohmann::json::parse(batch.frames[0]->columns.get(segment_line))["reason"] == "non_finite");
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
  CHECK_THROWS_WITH_AS(Encode::info(with_format({"png", "tiff"})),
                       "encode.format knows coco, overlay and png, not 'tiff'", UsageError);
}

TEST_CASE("what goes wrong with one picture's side file fails that picture alone") {
  World world;
  Batch batch({picture(200, 0, 2), frame_with_object(0.5F, 1)});
  Detections crowd;
  crowd.list.assign(65'536, Detection{0, 0, 1, 1, 0.5F, 1});  // more than the ids of a 16-bit map
  batch.frames[0]->columns.set(masks, std::vector<Mask>(crowd.list.size(), Mask{{side * side}, side, side, 0, 0.5F}));
  batch.frames[0]->columns.set(detections, std::move(crowd));
  Encode(with_format({"png"}), world.context()).run(batch);
  REQUIRE(batch.frames[0]->failed());
  CHECK(batch.frames[0]->failure->detail.find("65,535") != std::string::npos);
  CHECK(nlohmann::json::parse(batch.frames[0]->columns.get(segment_line))["state"] == "failed");
  CHECK_FALSE(batch.frames[1]->failed());
  CHECK(nlohmann::json::parse(batch.frames[1]->columns.get(segment_line))["state"] == "ok");
  CHECK(world.has("labels/picture1.png.png"));
  CHECK(world.counters.side_file_bytes ==
        static_cast<std::int64_t>(fs::file_size(world.folder.path() + "/labels/picture1.png.png")));
}

test::File file_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST_CASE("an overlay is drawn on a copy of the pixels") {
  World world;
  Batch batch({frame_with_object()});
  const PixelBuffer before = batch.frames[0]->columns.get(pixels);
  const std::vector<std::uint8_t> copy(before.data.get(), before.data.get() + 3 * side * side);
  Encode(with_format({"overlay"}), world.context()).run(batch);
  CHECK(std::equal(copy.begin(), copy.end(), before.data.get()));
  const test::Rgb drawn =
      test::pixels_of(test::decode_file(file_of(world.folder.path() + "/overlay/picture0.png.jpg")));
  REQUIRE(drawn.width == side);
  const auto differs = [&](int x, int y) {
    return std::abs(drawn.at(x, y)[0] - 200) + std::abs(drawn.at(x, y)[1] - 10) > 30;
  };
  CHECK(differs(16, 50));        // tinted by the mask
  CHECK_FALSE(differs(56, 50));  // outside of it
}

TEST_CASE("a picture that was reduced for the models has its overlay at full size, from the file") {
  World world;
  const test::Rgb ramp = test::ramp(120, 80);
  const auto bytes = test::make_png(ramp);
  std::ofstream(world.folder.path() + "/picture0.png", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  world.decode_limits.slab_bytes = 8000;
  const auto frame = std::make_shared<Frame>(picture(0)->item, Place{});
  frame->info = probe(bytes, world.decode_limits);
  REQUIRE(frame->info.reduction > 1);
  frame->columns.set(detections, Detections{});
  Batch batch({frame});
  Encode(with_format({"overlay"}), world.context()).run(batch);
  const test::Rgb drawn =
      test::pixels_of(test::decode_file(file_of(world.folder.path() + "/overlay/picture0.png.jpg")));
  CHECK(drawn.width == 120);
  CHECK(drawn.height == 80);
  CHECK(test::max_difference(drawn, ramp) < 40);
}

TEST_CASE("a picture longer than a JPEG can be goes without overlay, and is counted") {
  World world;
  const auto frame = std::make_shared<Frame>(picture(0)->item, Place{});
  frame->info.width = frame->info.pixel_width = 65'501;
  frame->info.height = frame->info.pixel_height = 1;
  frame->info.pixel_bytes = 3 * 65'501;
  frame->columns.set(pixels,
                     PixelBuffer{65'501, 1, {new std::uint8_t[3 * 65'501](), std::default_delete<std::uint8_t[]>()}});
  Batch batch({frame});
  Encode(with_format({"overlay"}), world.context()).run(batch);
  CHECK(world.counters[overlays_left_out].count() == 1);
  CHECK_FALSE(world.has("overlay/picture0.png.jpg"));
  CHECK(nlohmann::json::parse(frame->columns.get(segment_line))["state"] == "ok");
}

}  // namespace
}  // namespace millrace
