#include "io/regions/open_region.hpp"

#include <array>
#include <fstream>
#include <string_view>

#include "base/plugin.hpp"
#include "io/regions/tiff_plugin.hpp"

namespace millrace {

bool is_read_in_parts(const std::string& path) {
  std::array<char, 4> begin{};
  std::ifstream file(path, std::ios::binary);
  if (!file.read(begin.data(), begin.size())) return false;
  const std::string_view magic(begin.data(), begin.size());
  for (const std::string_view known : {std::string_view("II*\0", 4), std::string_view("MM\0*", 4),
                                       std::string_view("II+\0", 4), std::string_view("MM\0+", 4)}) {
    if (magic == known) return true;
  }
  return false;
}

std::shared_ptr<RegionSource> open_region(const std::string& path, const FileExpectations& expected,
                                          const RegionLimits& limits) {
  OpenFile file(path, expected);
  void* symbol = nullptr;
  try {
    symbol = open_plugin("libmillrace_tiff.so", tiff_open_symbol,
                         {"reads parts of TIFF files", "install Debian's libtiff6"});
  } catch (const PluginError& error) {
    throw PictureError(Reason::codec_missing, error.what());
  }
  std::shared_ptr<RegionSource> source;
  reinterpret_cast<TiffOpen*>(symbol)(std::move(file), limits, source);
  return source;
}

}  // namespace millrace
