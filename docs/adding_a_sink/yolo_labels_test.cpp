#include <doctest/doctest.h>

#include "stages/sinks/sink.hpp"
#include "tests/stages/sinks/sink_world.hpp"

namespace millrace {
namespace {

TEST_CASE("yolo: class, centre and size of each box as shares of the picture") {
  SinkWorld world;
  Batch batch({frame_with_object(), picture(1, 1, 2)});  // an object of class 1 in the left half; nothing
  Encode(with_format({"yolo"}), world.context()).run(batch);
  const auto bytes = world.file("yolo/picture0.png.txt");
  CHECK(std::string(bytes.begin(), bytes.end()) == "1 0.250000 0.500000 0.500000 1.000000\n");
  CHECK_FALSE(world.has("yolo/picture1.png.txt"));
}

}  // namespace
}  // namespace millrace
