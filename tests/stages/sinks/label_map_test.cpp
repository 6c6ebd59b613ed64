#include <doctest/doctest.h>

#include "stages/sinks/sink.hpp"
#include "tests/stages/sinks/sink_world.hpp"

namespace millrace {
namespace {

using World = SinkWorld;

TEST_CASE("an error with one picture's side file fails only that picture") {
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
        static_cast<std::int64_t>(std::filesystem::file_size(world.folder.path() + "/labels/picture1.png.png")));
}

}  // namespace
}  // namespace millrace
