#pragma once

#include <cstdint>
#include <memory>

#include "io/regions/region_source.hpp"

namespace millrace {

/// The picture with `mpp` micrometres a pixel, computed row by row; `source` itself if it has those within 1 %.
/// The filter is that of RowResampler. RegionInfo::spacing_mm of `source` must be known.
/// With `labels_back`, labels have the pixels of the file: RegionInfo::file_size is that of `source`, or its size.
/// Throws PictureError too_large if both together keep more than `memory_bytes`.
std::shared_ptr<RegionSource> resampled_picture(std::shared_ptr<RegionSource> source, double mpp, bool labels_back,
                                                std::int64_t memory_bytes);

}  // namespace millrace
