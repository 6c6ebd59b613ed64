#pragma once

#include <array>
#include <memory>
#include <optional>

#include "io/regions/open_region.hpp"
#include "io/regions/tiff_file.hpp"

namespace millrace {

/// Opens the picture in the current directory of a TIFF, which may be large. Several pictures may share the file.
/// `spacing_mm` is RegionInfo::spacing_mm; none: as its description says, if the file is of Aperio.
/// `file_size` is RegionInfo::file_size.
/// Null: its kind of picture is only read whole, as a palette is. Throws PictureError.
std::shared_ptr<RegionSource> open_tiff(const std::shared_ptr<TiffFile>& file, const RegionOptions& options,
                                        const std::optional<std::array<double, 3>>& spacing_mm = {},
                                        const std::optional<Extent>& file_size = {});

}  // namespace millrace
