#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

#include "stages/sinks/sink.hpp"
#include "tests/stages/sinks/sink_world.hpp"

namespace millrace {
namespace {

using World = SinkWorld;

TEST_CASE("an overlay is drawn on a copy of the pixels") {
  World world;
  Batch batch({frame_with_object()});
  const PixelBuffer before = batch.frames[0]->columns.get(pixels);
  const std::vector<std::uint8_t> copy(before.data.get(), before.data.get() + 3 * side * side);
  Encode(with_format({"overlay"}), world.context()).run(batch);
  CHECK(std::equal(copy.begin(), copy.end(), before.data.get()));
  const test::Rgb drawn = test::pixels_of(test::decode_file(world.file("overlay/picture0.png.jpg")));
  REQUIRE(drawn.width == side);
  const auto differs = [&](int x, int y) {
    return std::abs(drawn.at(x, y)[0] - 200) + std::abs(drawn.at(x, y)[1] - 10) > 30;
  };
  CHECK(differs(16, 50));        // tinted by the mask
  CHECK_FALSE(differs(56, 50));  // outside of the mask
}

TEST_CASE("a picture that was reduced for the models has its overlay at full size, from the file") {
  World world;
  const test::Rgb ramp = test::ramp(120, 80);
  const auto bytes = test::make_png(ramp);
  std::ofstream(world.folder.path() + "/picture0.png", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  world.source().limits[0].slab_bytes = 8000;
  const auto frame = std::make_shared<Frame>(picture(0)->item, PlanPosition{});
  frame->info = probe(bytes, world.source().limits[0]);
  REQUIRE(frame->info.reduction > 1);
  frame->columns.set(detections, Detections{});
  Batch batch({frame});
  Encode(with_format({"overlay"}), world.context()).run(batch);
  const test::Rgb drawn = test::pixels_of(test::decode_file(world.file("overlay/picture0.png.jpg")));
  CHECK(drawn.width == 120);
  CHECK(drawn.height == 80);
  CHECK(test::max_difference(drawn, ramp) < 40);
}

TEST_CASE("a picture too long for a JPEG has no overlay, and is counted") {
  World world;
  const auto frame = std::make_shared<Frame>(picture(0)->item, PlanPosition{});
  frame->info.width = frame->info.pixel_width = 65'501;
  frame->info.height = frame->info.pixel_height = 1;
  frame->info.pixel_bytes = 3 * 65'501;
  frame->columns.set(pixels,
                     PixelBuffer{65'501, 1, {new std::uint8_t[3 * 65'501](), std::default_delete<std::uint8_t[]>()}});
  Batch batch({frame});
  Encode(with_format({"overlay"}), world.context()).run(batch);
  CHECK(world.counted("overlays_left_out") == 1);
  CHECK_FALSE(world.has("overlay/picture0.png.jpg"));
  CHECK(nlohmann::json::parse(frame->columns.get(segment_line))["state"] == "ok");
}

}  // namespace
}  // namespace millrace
