#include "stages/mean_color.hpp"

#include "io/files/json_writer.hpp"
#include "stages/decode.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {

void write_color(const Color& color, JsonWriter& json) {
  json.begin_array().rounded(color.red, 2).rounded(color.green, 2).rounded(color.blue, 2).end_array();
}

void MeanColor::Options::visit(OptionVisitor& v) {
  v.option("step", step, "look at every n-th row and column only", {1, 1000});
}

StageInfo MeanColor::info(const Options& /*options*/) {
  return {name, Section::frame, "the mean colour of a picture", {&pixels}, {&mean_color}, {}};
}

MeanColor::MeanColor(const Options& options, const StageContext& /*context*/) : options_(options) {}

void MeanColor::run(Frame& frame) const {
  const PixelBuffer& raster = frame.columns.get(pixels);
  Color sum;
  double count = 0;
  for (int y = 0; y < raster.height; y += options_.step) {
    for (int x = 0; x < raster.width; x += options_.step) {
      const std::uint8_t* pixel = raster.data.get() + 3 * (std::ptrdiff_t{y} * raster.width + x);
      sum.red += pixel[0];
      sum.green += pixel[1];
      sum.blue += pixel[2];
      ++count;
    }
  }
  frame.columns.set(mean_color, {sum.red / count, sum.green / count, sum.blue / count});
}

template StageEntry stage_entry<MeanColor>();

}  // namespace millrace
