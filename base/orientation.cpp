#include "base/orientation.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>

namespace millrace {
namespace {

constexpr std::array<std::string_view, 3> letters_of{"LR", "PA", "IS"};  // of each direction in space: low, high end

double volume_of(const Directions& d) {
  return d[0][0] * (d[1][1] * d[2][2] - d[1][2] * d[2][1]) - d[0][1] * (d[1][0] * d[2][2] - d[1][2] * d[2][0]) +
         d[0][2] * (d[1][0] * d[2][1] - d[1][1] * d[2][0]);
}

/// The directions with length 1; nothing if one has none, or if they lie in a plane.
std::optional<Directions> unit_of(Directions directions) {
  for (auto& direction : directions) {
    const double length = std::hypot(direction[0], direction[1], direction[2]);
    if (!(length > 0) || !std::isfinite(length)) return {};
    for (double& part : direction) part /= length;
  }
  if (!(std::abs(volume_of(directions)) > 1e-3)) return {};
  return directions;
}

}  // namespace

bool is_orientation(std::string_view letters) {
  if (letters.size() != 3) return false;
  return std::ranges::all_of(letters_of, [&](std::string_view pair) {
    return std::ranges::count_if(letters, [&](char letter) { return pair.find(letter) != pair.npos; }) == 1;
  });
}

std::optional<AxisMap> axis_map(const Directions& directions, std::string_view orientation) {
  const std::optional<Directions> unit = unit_of(directions);
  if (!unit || !is_orientation(orientation)) return {};
  // The axis of the file for each direction in space, by the rule of nibabel 5.4: the axis that lies nearest to one of
  // them comes first.
  const auto nearness = [&](std::size_t axis) {
    const auto& [x, y, z] = (*unit)[axis];
    return std::max({std::abs(x), std::abs(y), std::abs(z)});
  };
  std::array<std::size_t, 3> axes{0, 1, 2}, best{};
  std::ranges::stable_sort(axes, std::ranges::greater{}, nearness);
  std::array<bool, 3> taken{};
  for (const std::size_t axis : axes) {
    std::size_t nearest = 3;
    for (std::size_t space = 0; space < 3; ++space) {
      if (!taken[space] && (nearest == 3 || std::abs((*unit)[axis][space]) > std::abs((*unit)[axis][nearest])))
        nearest = space;
    }
    taken[nearest] = true;
    best[nearest] = axis;
  }
  AxisMap map;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const char letter = orientation[axis];
    std::size_t space = 0;
    while (letters_of[space].find(letter) == std::string_view::npos) ++space;
    const bool upwards = letter == letters_of[space][1];
    map.axes[axis] = {static_cast<int>(best[space]), ((*unit)[best[space]][space] > 0) != upwards};
  }
  return map;
}

}  // namespace millrace
