// The code of libmillrace_tiff.so that reads TIFF files in parts.
#include <memory>
#include <utility>

#include "io/regions/region_plugin.hpp"
#include "io/regions/tiff_stack_region.hpp"

extern "C" __attribute__((visibility("default"))) void millrace_region_open(
    millrace::OpenFile file, const std::string& /*path*/, const millrace::RegionOptions& options,
    std::shared_ptr<millrace::RegionSource>& source) {
  source = millrace::open_tiff_or_stack(std::make_shared<millrace::TiffFile>(std::move(file), options.memory_bytes),
                                        options);
}
