#include "io/sinks/label_tiff.hpp"

#include "base/plugin.hpp"

namespace millrace {

LabelTiffWriter& find_label_tiff_writer() {
  return *reinterpret_cast<LabelTiffWriter*>(
      open_plugin("libmillrace_tiff.so", label_tiff_symbol,
                  {"writes label maps as TIFF", "install Debian's libtiff6 and libpugixml1v5"}));
}

}  // namespace millrace
