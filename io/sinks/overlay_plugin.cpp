// libmillrace_overlay.so, opened by io/sinks/overlay_opener.cpp.
#include <opencv2/core/utility.hpp>

#include "io/sinks/overlay.hpp"
#include "io/sinks/overlay_opener.hpp"

namespace millrace {

extern "C" void millrace_draw_overlay_2(const PixelBuffer& raster, const PictureInfo& info,
                                        std::span<const Object> objects, const OverlayClasses& classes) {
  cv::setNumThreads(0);  // OpenCV's own threads would multiply with ours
  if (classes.labels != nullptr) draw_classes(raster, *classes.labels, classes.names);
  draw_overlay(raster, info, objects);
}

}  // namespace millrace
