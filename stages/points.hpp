#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/extent.hpp"
#include "base/orientation.hpp"
#include "stages/field.hpp"
#include "stages/point_finder.hpp"

namespace millrace {

/// The maxima of a picture's or volume's heatmaps.
struct Points {
  bool volume = false;
  Affine affine{};                           ///< of a volume: RegionInfo::affine
  std::vector<std::string> names;            ///< by channel
  std::vector<std::vector<Point>> channels;  ///< the best first
};

/// Moves points of a volume of size `from` to one of size `to` that fills the same space.
void resize_points(Points& points, const Extent& from, const Extent& to);

/// Writes a list with an entry for each channel: its number, its name, and its points as x, y and value. Of a volume:
/// x, y, z and value. The centre of the first pixel is 0.5, 0.5, as for boxes. If the affine of a volume is known, a list
/// in the same order has the places in mm.
void write_points(const Points& points, JsonWriter& json);
inline constexpr Field<Points> points_found{"points", write_points};

}  // namespace millrace
