#pragma once

#include <array>
#include <memory>
#include <optional>

#include "io/files/read_file.hpp"
#include "io/regions/open_region.hpp"

namespace millrace {

/// A picture of a TIFF that is large.
struct TiffPage {
  int directory = 0;  ///< its place among the directories of the file
  /// RegionInfo::spacing_mm; none: as its description says, if the file is of Aperio.
  std::optional<std::array<double, 3>> spacing_mm{};
};

/// Opens a picture of a TIFF with libtiff. Null: its kind of picture is only read whole, as a palette is.
/// Throws PictureError.
std::shared_ptr<RegionSource> open_tiff(OpenFile file, const RegionOptions& options, const TiffPage& page = {});

}  // namespace millrace
