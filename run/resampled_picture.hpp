#pragma once

#include <cstdint>
#include <memory>

#include "io/regions/region_source.hpp"

namespace millrace {

/// The picture with `mpp` micrometres a pixel, computed row by row; `source` itself if it has those within 1 %.
/// The filter is that of RowResampler. RegionInfo::spacing_mm of `source` must be known.
/// Throws PictureError too_large if both together keep more than `memory_bytes`.
std::shared_ptr<RegionSource> resampled_picture(std::shared_ptr<RegionSource> source, double mpp,
                                                std::int64_t memory_bytes);

}  // namespace millrace
