#pragma once

#include "stages/stage.hpp"

namespace millrace {

/// A colour, 0 to 255 each.
struct Color {
  double red = 0, green = 0, blue = 0;
};

void write_color(const Color& color, JsonWriter& json);
inline constexpr Field<Color> mean_color{"mean_color", write_color};

/// The mean colour of a picture. Reads `pixels`, writes `mean_color` into the segment line. Host, any thread.
class MeanColor final : public FrameStage {
 public:
  static constexpr const char* name = "mean_color";
  struct Options {
    int step = 1;
    void visit(OptionVisitor& v);
  };
  static StageInfo info(const Options& options);

  MeanColor(const Options& options, const StageContext& context);
  void run(Frame& frame) const override;

 private:
  Options options_;
};

}  // namespace millrace
