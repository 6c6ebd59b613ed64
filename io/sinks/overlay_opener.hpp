#pragma once

#include <span>
#include <string>

#include "io/decode/decode.hpp"
#include "io/results/label_rows.hpp"
#include "io/results/object.hpp"

namespace millrace {

/// The classes of the pixels of a picture. No labels: it has none.
struct OverlayClasses {
  const LabelRows* labels = nullptr;
  std::span<const std::string> names{};  ///< by label
};

/// Calls draw_classes() if there are any, then draw_overlay(), both of io/sinks/overlay.hpp.
using OverlayDrawing = void(const PixelBuffer& raster, const PictureInfo& info, std::span<const Object> objects,
                            const OverlayClasses& classes);

/// Opens libmillrace_overlay.so, which contains that function. Throws PluginError.
OverlayDrawing* open_overlay_drawing();

/// The symbol of the plug-in. Increase its number when PixelBuffer, PictureInfo or Object changes.
inline constexpr const char* overlay_drawing_symbol = "millrace_draw_overlay_2";

}  // namespace millrace
