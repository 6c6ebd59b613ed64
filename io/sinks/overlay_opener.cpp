#include "io/sinks/overlay_opener.hpp"

#include "base/plugin.hpp"

namespace millrace {

OverlayDrawing* open_overlay_drawing() {
  return reinterpret_cast<OverlayDrawing*>(
      open_plugin("libmillrace_overlay.so", overlay_drawing_symbol,
                  {"draws overlays", "install Debian's libopencv-imgproc406, or leave overlay out of --format"}));
}

}  // namespace millrace
