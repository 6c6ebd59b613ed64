#include "stages/sharpness.hpp"

#include "base/plugin.hpp"
#include "io/files/json_writer.hpp"
#include "stages/decode.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {

void write_sharpness(const double& value, JsonWriter& json) { json.rounded(value, 3); }

StageInfo Sharpness::info(const Options& /*options*/) {
  return {name, Section::frame, "how sharp a picture is", {&pixels}, {&sharpness}, {}};
}

Sharpness::Sharpness(const Options& /*options*/, const StageContext& /*context*/)
    : measure_(reinterpret_cast<Measure*>(open_plugin(
          "libmillrace_opencv.so", "millrace_sharpness_1",
          {"measures sharpness", "install Debian's libopencv-imgproc406, or leave 'sharpness' out of the recipe"}))) {}

void Sharpness::run(Frame& frame) const {
  const PixelBuffer& raster = frame.columns.get(pixels);
  frame.columns.set(sharpness, measure_(raster.data.get(), raster.width, raster.height));
}

template StageEntry stage_entry<Sharpness>();

}  // namespace millrace
