#pragma once

#include <optional>
#include <vector>

#include "base/orientation.hpp"
#include "gpu/windows.hpp"
#include "models/package.hpp"
#include "stages/tiles.hpp"

namespace millrace {

/// How the windows of a model lie in an item.
struct WindowLayout {
  Extent roi;
  WindowOrder order;            ///< in which the model takes their axes
  Mirror reversed;              ///< axes that the model sees from their end
  std::vector<Mirror> mirrors;  ///< the ways in which it sees a window
  bool operator==(const WindowLayout&) const = default;
};

/// The layout for a picture, or for a volume that lies so in space. The model also sees windows mirrored along `also`.
/// Nothing if the package asks for an orientation, and it is not known how the volume lies.
std::optional<WindowLayout> window_layout(const Package& package, const Directions& directions,
                                          const Tiling::Axes& also = {});

}  // namespace millrace
