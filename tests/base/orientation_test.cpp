#include "base/orientation.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

namespace millrace {
namespace {

TEST_CASE("three letters name an orientation, one of each pair") {
  for (const char* good : {"RAS", "LPS", "IPL", "SAR"}) CHECK(is_orientation(good));
  for (const char* bad : {"", "RA", "RASS", "RLS", "AAS", "ras", "XYZ", "R S"}) CHECK_FALSE(is_orientation(bad));
}

TEST_CASE("each axis of a model is that of the file which lies nearest to it") {
  using Axes = std::array<AxisMap::Axis, 3>;
  // Columns to the left, lines to the back, slices up: LPS, as most CT.
  const Directions axial{{{-0.7, 0, 0}, {0, -0.7, 0}, {0, 0, 2}}};
  CHECK(axis_map(axial, "LPS")->axes == Axes{{{0, false}, {1, false}, {2, false}}});
  CHECK(axis_map(axial, "RAS")->axes == Axes{{{0, true}, {1, true}, {2, false}}});
  CHECK(axis_map(axial, "SRP")->axes == Axes{{{2, false}, {0, true}, {1, false}}});
  // Columns to the back, lines down, slices to the right, a little turned: PIR.
  const Directions sagittal{{{0.05, -1, 0.2}, {0.02, -0.2, -1}, {1.2, 0.06, 0}}};
  CHECK(axis_map(sagittal, "PIR")->axes == Axes{{{0, false}, {1, false}, {2, false}}});
  CHECK(axis_map(sagittal, "RAS")->axes == Axes{{{2, false}, {0, true}, {1, true}}});
  CHECK(axis_map(sagittal, "IAL")->axes == Axes{{{1, false}, {0, true}, {2, true}}});
  // Two axes lie nearest to the right. The second one lies nearer.
  const Directions turned{{{1, 0.9, 0}, {1.1, -0.9, 0}, {0, 0, 1}}};
  CHECK(axis_map(turned, "RAS")->axes == Axes{{{1, false}, {0, false}, {2, false}}});
  // As nibabel 5.4.2 says, though another map has a larger sum of cosines.
  const Directions oblique{{{-0.80, -0.33, -0.50}, {0.14, 0.71, -0.69}, {0.59, -0.63, -0.51}}};
  CHECK(axis_map(oblique, "RAS")->axes == Axes{{{0, true}, {1, false}, {2, true}}});
}

TEST_CASE("nothing is known of a volume without directions, or whose axes lie in a plane") {
  CHECK_FALSE(axis_map({}, "RAS"));
  CHECK_FALSE(axis_map({{{1, 0, 0}, {0, 1, 0}, {0, 0, 0}}}, "RAS"));
  CHECK_FALSE(axis_map({{{1, 0, 0}, {2, 0, 0}, {0, 0, 1}}}, "RAS"));
  CHECK_FALSE(axis_map({{{1, 0, 0}, {0, 1, 0}, {1, 1, 0}}}, "RAS"));
  CHECK_FALSE(axis_map({{{std::nan(""), 0, 0}, {0, 1, 0}, {0, 0, 1}}}, "RAS"));
  CHECK_FALSE(axis_map({{{std::numeric_limits<double>::infinity(), 0, 0}, {0, 1, 0}, {0, 0, 1}}}, "RAS"));
  CHECK_FALSE(axis_map({{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}, "RA"));
}

}  // namespace
}  // namespace millrace
