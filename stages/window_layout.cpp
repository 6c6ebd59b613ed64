#include "stages/window_layout.hpp"

#include <array>
#include <cstddef>

namespace millrace {

std::optional<WindowLayout> window_layout(const Package& package, const Directions& directions,
                                          const Tiling::Axes& also) {
  const InputSpec& spec = package.input;
  if (spec.depth == 0)
    return WindowLayout{{spec.height, 1, spec.width}, rows_first, {}, mirrors_of({also.y, false, also.x})};
  const std::optional<AxisMap> map =
      package.orientation.empty() ? AxisMap{} : axis_map(directions, package.orientation);
  if (!map) return {};
  WindowLayout layout;
  Mirror mirrored;
  const std::array sides{spec.width, spec.height, spec.depth};
  const std::array mirrors{also.x, also.y, also.z};
  for (std::size_t axis = 0; axis < sides.size(); ++axis) {
    const auto& [of_file, reversed] = map->axes[axis];
    layout.roi.along(of_file) = sides[axis];
    layout.reversed.along(of_file) = reversed;
    mirrored.along(of_file) = mirrors[axis];
  }
  const auto& [x, y, z] = map->axes;
  layout.order =
      spec.columns_first ? WindowOrder{x.of_file, y.of_file, z.of_file} : WindowOrder{z.of_file, y.of_file, x.of_file};
  layout.mirrors = mirrors_of(mirrored);
  for (Mirror& mirror : layout.mirrors) {
    for (int axis = 0; axis < 3; ++axis) mirror.along(axis) = mirror.along(axis) != layout.reversed.along(axis);
  }
  return layout;
}

}  // namespace millrace
