#include "stages/holes.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace millrace {
namespace {

TEST_CASE("pixels in holes get the label of holes and zeros as values, in these rows only") {
  constexpr int columns = 4, channels = 2;
  const std::vector<Hole> holes{{0, 2, 1, 3}, {2, 9, 0, 4}, {5, 6, 0, 1}};
  std::vector<std::uint8_t> labels(2 * columns, 7);
  std::vector<float> values(labels.size() * channels, 1.5F);
  CHECK(cover_holes(holes, 1, columns, labels, values) == 2 + 4);
  CHECK(labels == std::vector<std::uint8_t>{7, 255, 255, 7, 255, 255, 255, 255});
  CHECK(values == std::vector<float>{1.5, 1.5, 0, 0, 0, 0, 1.5, 1.5, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(count_holes(LabelsInMemory(std::shared_ptr<const std::uint8_t[]>(labels.data(), [](auto) {}), labels.size())) ==
        6);
  CHECK(cover_holes(holes, 9, columns, labels) == 0);
  CHECK(cover_holes({}, 0, columns, labels) == 0);
  CHECK(cover_holes(holes, 0, columns, {}) == 0);
}

}  // namespace
}  // namespace millrace
