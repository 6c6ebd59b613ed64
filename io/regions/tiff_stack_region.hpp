#pragma once

#include <memory>

#include "io/regions/open_region.hpp"
#include "io/regions/tiff_file.hpp"

namespace millrace {

/// Opens a TIFF. If it is an OME-TIFF or an ImageJ stack, its pages are the channels of a picture, or the slices of a
/// volume, at the time RegionOptions::volume. Otherwise it is the picture of the first page.
/// Null: its kind of picture is only read whole. Throws PictureError.
std::shared_ptr<RegionSource> open_tiff_or_stack(const std::shared_ptr<TiffFile>& file, const RegionOptions& options);

}  // namespace millrace
