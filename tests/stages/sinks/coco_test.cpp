#include <doctest/doctest.h>

#include "base/json.hpp"
#include "io/results/segments.hpp"
#include "stages/sinks/sink.hpp"
#include "tests/stages/sinks/sink_world.hpp"

namespace millrace {
namespace {

using World = SinkWorld;

TEST_CASE("existing outputs are listed with folders of pictures first") {
  World world;
  for (const char* name : {"coco-00001.json", "coco.json", "labels", "overlay", "other"})
    std::filesystem::create_directory(world.output_folder + "/" + name);
  CHECK(sink_outputs(world.output_folder) ==
        std::vector<std::string>{"overlay", "labels", "coco.json", "coco-00001.json"});
  CHECK(sink_outputs(world.output_folder + "/none").empty());
}

TEST_CASE("coco: one file over all finished segments") {
  World world;
  Batch batch({frame_with_object(), picture(1, 1, 2)});
  batch.frames[1]->fail("decode", Reason::truncated, "cut");
  Encode(with_format({"coco"}), world.context()).run(batch);
  SegmentStore store(world.output_folder, "plan");
  store.open_segment(0, {0, 1}, {{0, 1}});
  store.append(0, 0,
               {{0, batch.frames[0]->columns.get(segment_line), true, Reason::internal, 1},
                {1, batch.frames[1]->columns.get(segment_line), false, Reason::truncated, 0}});
  CHECK_FALSE(world.has("coco.json"));
  find_sink("coco").finish(world.output_folder);
  const auto bytes = world.file("coco.json");
  const auto json = nlohmann::json::parse(bytes.begin(), bytes.end());
  CHECK(json["images"].size() == 1);
  CHECK(json["annotations"].size() == 1);
  CHECK(json["info"]["failed_pictures_left_out"] == 1);
}

}  // namespace
}  // namespace millrace
