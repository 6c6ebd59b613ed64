#include "stages/sharpness.hpp"

#include <doctest/doctest.h>

#include "stages/decode.hpp"
#include "tests/stages/stage_fixture.hpp"

namespace millrace {

TEST_CASE("a picture with edges is sharper than one without") {
  StageFixture fixture;
  const auto measured = [&](int white_every) {
    const auto frame = picture(0);
    std::uint8_t* const data = frame->columns.get(pixels).data.get();
    for (int i = 0; i < 3 * side * side; ++i) data[i] = i / 3 % white_every == 0 ? 255 : 0;
    Sharpness({}, fixture.context()).run(*frame);
    return frame->columns.get(sharpness);
  };
  CHECK(measured(1) == 0);
  CHECK(measured(2) > measured(16));
  CHECK(measured(16) > 0);
}

}  // namespace millrace
