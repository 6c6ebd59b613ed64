#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace millrace {

/// How a volume lies in space: for a step along its columns, lines and slices, millimetres to the right, to the front and
/// up (RAS+, as in NIfTI). All zeros: unknown.
using Directions = std::array<std::array<double, 3>, 3>;

/// Where voxels lie in space, as in NIfTI. Its rows give millimetres to the right, to the front and up. The first three
/// numbers of a row are for a step along columns, lines and slices. The fourth is for the centre of the first voxel.
/// All zeros: unknown.
using Affine = std::array<std::array<double, 4>, 3>;

/// Where the axes x, y and z of a model lie in a file.
struct AxisMap {
  struct Axis {
    int of_file = 0;        ///< 0: columns, 1: lines, 2: slices
    bool reversed = false;  ///< the model sees the last one first
    bool operator==(const Axis&) const = default;
  };
  std::array<Axis, 3> axes{Axis{0}, Axis{1}, Axis{2}};
  bool operator==(const AxisMap&) const = default;
};

/// Whether these are three axes as nibabel names them: R or L, A or P, S or I, in any order. "RAS": x goes to the right.
bool is_orientation(std::string_view letters);

/// The map for a model whose x, y and z have this orientation. As in nibabel 5.4, the axis of the file that lies nearest to
/// a direction takes it first.
/// Nothing if it is not known how the volume lies, or if two axes of it have the same direction.
std::optional<AxisMap> axis_map(const Directions& directions, std::string_view orientation);

}  // namespace millrace
