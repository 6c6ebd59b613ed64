#include "stages/tiles.hpp"

#include <doctest/doctest.h>

#include "stages/decode.hpp"
#include "tests/stages/stage_fixture.hpp"

namespace millrace {
namespace {

WindowOptions windows_of(const OptionValues& values) {
  return parse_options<Tiles::Options>("tiles", values).windows();
}

TEST_CASE("options of windows") {
  CHECK(windows_of({}).roi == Extent{0, 0, 0});
  CHECK(windows_of({{"roi", {"512"}}}).roi == Extent{512, 1, 512});
  CHECK(windows_of({{"roi", {"240", "320"}}}).roi == Extent{240, 1, 320});
  const WindowOptions options =
      windows_of({{"overlap", {"0.5"}}, {"weights", {"constant"}}, {"sigma", {"0.25"}}, {"align", {"32"}}});
  CHECK(options.overlap == 0.5);
  CHECK(options.weights == WindowWeights::constant);
  CHECK(options.sigma == 0.25);
  CHECK(options.align == 32);
  for (const OptionValues& wrong : {OptionValues{{"roi", {"0"}}},
                                    {{"roi", {"9000"}}},
                                    {{"roi", {"12x"}}},
                                    {{"roi", {"1", "2", "3"}}},
                                    {{"weights", {"round"}}},
                                    {{"overlap", {"1"}}}}) {
    CHECK_THROWS_AS(windows_of(wrong), UsageError);
  }
}

TEST_CASE("the size of windows is known before the run") {
  CHECK_FALSE(Tiles::info({}).window);
  Tiles::Options options;
  options.roi = {"96"};
  CHECK(Tiles::info(options).window == Extent{96, 1, 96});
}

TEST_CASE("a picture that was reduced has no windows") {
  const StageFixture fixture;
  const Tiles tiles({}, fixture.context());
  const auto frame = picture(1);
  tiles.run(*frame);
  CHECK(frame->columns.get(tiling).overlap == 0.25);
  const auto reduced = picture(2);
  reduced->info.reduction = 2;
  CHECK_THROWS_AS(tiles.run(*reduced), PictureError);
}

}  // namespace
}  // namespace millrace
