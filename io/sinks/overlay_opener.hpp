#pragma once

#include <span>

#include "io/decode/decode.hpp"
#include "io/results/object.hpp"

namespace millrace {

/// The type of draw_overlay() in io/sinks/overlay.hpp.
using OverlayDrawing = void(const PixelBuffer& raster, const PictureInfo& info, std::span<const Object> objects);

/// Opens libmillrace_overlay.so, which contains that function. Throws PluginError.
OverlayDrawing* open_overlay_drawing();

/// The symbol of the plug-in. Increase its number when PixelBuffer, PictureInfo or Object changes.
inline constexpr const char* overlay_drawing_symbol = "millrace_draw_overlay_1";

}  // namespace millrace
