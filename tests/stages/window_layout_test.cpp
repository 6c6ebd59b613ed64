#include "stages/window_layout.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace millrace {
namespace {

Package package_of(const std::string& orientation, bool columns_first) {
  Package package;
  package.orientation = orientation;
  package.input.width = 12;
  package.input.height = 10;
  package.input.depth = 8;
  package.input.columns_first = columns_first;
  return package;
}

const Directions sagittal{{{0, -1, 0}, {0, 0, -1}, {1.2, 0, 0}}};  // PIR

TEST_CASE("windows of pictures, and of volumes without an orientation, have the axes of the file") {
  Package package = package_of("", true);
  const auto volume = window_layout(package, sagittal);
  REQUIRE(volume);
  CHECK(volume->roi == Extent{8, 10, 12});
  CHECK(volume->order == columns_first);
  CHECK(volume->mirrors == std::vector<Mirror>{{}});
  CHECK(window_layout(package_of("", false), {})->order == rows_first);
  package.input.depth = 0;
  const auto picture = window_layout(package, {}, {true, true, false});
  REQUIRE(picture);
  CHECK(picture->roi == Extent{10, 1, 12});
  CHECK(picture->order == rows_first);
  CHECK(picture->mirrors == std::vector<Mirror>{{}, {false, false, true}, {true, false, false}, {true, false, true}});
}

TEST_CASE("windows of a volume follow the orientation of the model") {
  // x: slices, y: columns from their end, z: lines from their end.
  const auto layout = window_layout(package_of("RAS", true), sagittal, {false, true, false});
  REQUIRE(layout);
  CHECK(layout->roi == Extent{12, 8, 10});
  CHECK(layout->order == WindowOrder{2, 0, 1});
  CHECK(layout->reversed == Mirror{false, true, true});
  // As it lies for the model, and mirrored along y, which is reversed already.
  CHECK(layout->mirrors == std::vector<Mirror>{{false, true, true}, {false, true, false}});
  CHECK(window_layout(package_of("RAS", false), sagittal)->order == WindowOrder{1, 0, 2});
  CHECK_FALSE(window_layout(package_of("RAS", true), {}));
}

}  // namespace
}  // namespace millrace
