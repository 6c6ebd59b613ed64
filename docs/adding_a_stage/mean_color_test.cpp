#include "stages/mean_color.hpp"

#include <doctest/doctest.h>

#include "stages/decode.hpp"
#include "tests/stages/stage_fixture.hpp"

namespace millrace {
namespace {

// Two columns: black and (100, 200, 50).
Color mean_with(const OptionValues& values) {
  StageFixture fixture;
  Frame frame(Item{}, PlanPosition{});
  PixelBuffer raster{2, 1, {new std::uint8_t[6]{0, 0, 0, 100, 200, 50}, std::default_delete<std::uint8_t[]>()}};
  frame.columns.set(pixels, std::move(raster));
  MeanColor(parse_options<MeanColor::Options>("mean_color", values), fixture.context()).run(frame);
  return frame.columns.get(mean_color);
}

TEST_CASE("the mean of all pixels") {
  CHECK(mean_with({}).red == 50);
  CHECK(mean_with({}).green == 100);
  CHECK(mean_with({}).blue == 25);
}

TEST_CASE("mean_color.step") { CHECK(mean_with({{"step", {"2"}}}).green == 0); }

}  // namespace
}  // namespace millrace
