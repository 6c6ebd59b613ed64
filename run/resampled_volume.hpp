#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "io/regions/region_source.hpp"

namespace millrace {

/// The volume with voxels of these sides in mm (x, y, z; 0: that of the file), computed slice by slice; `source` itself if
/// it has as many voxels. Values are interpolated linearly along each axis, as torch.nn.functional.interpolate does with
/// mode="trilinear" and align_corners=False. RegionInfo::file_size is that of `source`.
/// Throws PictureError: unsupported_format if an axis to resample has no spacing, too_large if both together keep more than
/// `memory_bytes`.
std::shared_ptr<RegionSource> resampled_volume(std::shared_ptr<RegionSource> source,
                                               const std::array<double, 3>& spacing_mm, std::int64_t memory_bytes);

}  // namespace millrace
