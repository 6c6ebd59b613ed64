#pragma once

#include <span>

#include "io/decode/decode.hpp"
#include "io/results/object.hpp"

namespace millrace {

/// draw_overlay() of io/sinks/overlay.hpp.
using OverlayDrawing = void(const PixelBuffer& raster, const PictureInfo& info, std::span<const Object> objects);

/// It is in libmillrace_overlay.so, which is opened here. Throws PluginError.
OverlayDrawing* open_overlay_drawing();

/// What the plug-in exports. The number goes up whenever PixelBuffer, PictureInfo or Object changes.
inline constexpr const char* overlay_drawing_symbol = "millrace_draw_overlay_1";

}  // namespace millrace
