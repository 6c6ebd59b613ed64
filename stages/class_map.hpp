#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/extent.hpp"
#include "base/geo_tags.hpp"
#include "io/results/label_rows.hpp"
#include "stages/field.hpp"

namespace millrace {

/// A class for each pixel of a picture, or each voxel of a volume.
struct ClassMap {
  Extent size;
  bool volume = false;
  std::shared_ptr<const LabelRows> labels;
  std::vector<std::string> names;      ///< by label
  bool one_slab = false;               ///< a picture that is not higher than a window
  std::array<double, 3> spacing_mm{};  ///< RegionInfo::spacing_mm
  std::string nifti_header{};          ///< RegionInfo::nifti_header
  GeoTags geo{};                       ///< RegionInfo::geo
  std::int64_t instances = 0;          ///< list components with at least so many pixels; 0: list none
};

/// Writes the classes that the picture has: label, name, number of pixels, and run lengths if it fits one slab.
/// Of a volume: the voxels of each class.
/// If the spacing is known, also square millimetres, or millilitres of a volume.
/// With `instances`, the boxes and sizes of the components of each class, except of one named "background".
/// Throws PictureError too_large if there are too many components.
void write_class_map(const ClassMap& map, JsonWriter& json);
inline constexpr Field<ClassMap> class_map{"semantic", write_class_map};

/// Pixels that could not be read; only of a picture that has such pixels. Their label is `hole_label`, and no class
/// counts them.
void write_hole_pixels(const std::int64_t& pixels, JsonWriter& json);
inline constexpr Field<std::int64_t> hole_pixels{"hole_pixels", write_hole_pixels};

/// Blended values of each pixel or voxel, with the activation of the package or without.
struct ClassValues {
  Extent size;
  bool volume = false;
  int channels = 0;
  std::shared_ptr<const float[]> values;  ///< [rows][lines][columns][channels]
};
inline constexpr Field<ClassValues> class_values{"class_values"};

}  // namespace millrace
