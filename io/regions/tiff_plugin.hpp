#pragma once

#include <memory>

#include "io/files/read_file.hpp"
#include "io/regions/open_region.hpp"

namespace millrace {

/// The interface of libmillrace_tiff.so, which is of the same build as the program.
/// Leaves `source` null if the file is no picture that is read in parts. Throws PictureError.
using TiffOpen = void(OpenFile file, const RegionLimits& limits, std::shared_ptr<RegionSource>& source);
inline constexpr const char* tiff_open_symbol = "millrace_tiff_open";

}  // namespace millrace
