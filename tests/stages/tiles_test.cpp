#include "stages/tiles.hpp"

#include <doctest/doctest.h>

#include "stages/decode.hpp"
#include "tests/stages/stage_fixture.hpp"

namespace millrace {
namespace {

WindowOptions windows_of(const OptionValues& values) {
  return parse_options<Tiles::Options>("tiles", values).tiling().windows;
}

std::vector<int> sides_of(const std::vector<std::string>& roi) {
  return parse_options<Tiles::Options>("tiles", {{"roi", roi}}).sides();
}

TEST_CASE("options of windows") {
  CHECK(sides_of({}).empty());
  CHECK(sides_of({"512"}) == std::vector<int>{512});
  CHECK(sides_of({"240", "320"}) == std::vector<int>{240, 320});
  CHECK(sides_of({"64", "32", "16"}) == std::vector<int>{64, 32, 16});
  const WindowOptions options =
      windows_of({{"overlap", {"0.5"}}, {"weights", {"constant"}}, {"sigma", {"0.25"}}, {"align", {"32"}}});
  CHECK(options.overlap == 0.5);
  CHECK(options.weights == WindowWeights::constant);
  CHECK(options.sigma == 0.25);
  CHECK(options.align == 32);
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"0"}, {"9000"}, {"12x"}, {""}, {"1", "2", "3", "4"}}) {
    CHECK_THROWS_AS(sides_of(wrong), UsageError);
  }
  CHECK_THROWS_AS(windows_of({{"weights", {"round"}}}), UsageError);
  CHECK_THROWS_AS(windows_of({{"overlap", {"1"}}}), UsageError);
  CHECK_THROWS_AS(windows_of({{"bad", {"maybe"}}}), UsageError);
  for (const char* wrong : {"white", "220x", "nan", "inf"}) {
    CHECK_THROWS_AS(windows_of({{"skip_above", {wrong}}}), UsageError);
    CHECK_THROWS_AS(windows_of({{"skip_below", {wrong}}}), UsageError);
  }
  const EmptyRule rule =
      parse_options<Tiles::Options>("tiles", {{"skip_above", {"220"}}, {"skip_below", {"-900.5"}}}).tiling().empty;
  CHECK(rule.above == 220);
  CHECK(rule.below == -900.5F);
  CHECK_FALSE(Tiles::Options().tiling().empty.any());
}

TEST_CASE("the size of windows is known before the run") {
  CHECK(Tiles::info({}).window.empty());
  Tiles::Options options;
  options.roi = {"96"};
  CHECK(Tiles::info(options).window == std::vector<int>{96});
}

TEST_CASE("a picture that was reduced has no windows") {
  const StageFixture fixture;
  const Tiles tiles({}, fixture.context());
  const auto frame = picture(1);
  tiles.run(*frame);
  CHECK(frame->columns.get(tiling).windows.overlap == 0.25);
  const auto reduced = picture(2);
  reduced->info.reduction = 2;
  CHECK_THROWS_AS(tiles.run(*reduced), PictureError);
}

}  // namespace
}  // namespace millrace
