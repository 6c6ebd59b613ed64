#pragma once

#include <memory>
#include <string>

#include "io/files/read_file.hpp"
#include "io/regions/open_region.hpp"

namespace millrace {

/// The interface of the plug-ins that read files in parts, such as libmillrace_tiff.so. They are of the same build as the
/// program. `file` is `path`, checked and open. Leaves `source` null if the file is only read whole.
/// Throws PictureError.
using RegionOpen = void(OpenFile file, const std::string& path, const RegionOptions& options,
                        std::shared_ptr<RegionSource>& source);
inline constexpr const char* region_open_symbol = "millrace_region_open";

}  // namespace millrace
