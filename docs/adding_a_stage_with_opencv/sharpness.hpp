#pragma once

#include <cstdint>

#include "stages/stage.hpp"

namespace millrace {

void write_sharpness(const double& value, JsonWriter& json);
inline constexpr Field<double> sharpness{"sharpness", write_sharpness};

/// How sharp a picture is: the variance of its Laplacian, low where it is blurred. Reads `pixels`, writes `sharpness`
/// into the segment line. Host, any thread. Method: Pech-Pacheco et al., Diatom autofocusing in brightfield microscopy,
/// 2000.
class Sharpness final : public FrameStage {
 public:
  static constexpr const char* name = "sharpness";
  struct Options {
    void visit(OptionVisitor& /*v*/) {}
  };
  static StageInfo info(const Options& options);

  /// Throws PluginError where libmillrace_opencv.so cannot be opened.
  Sharpness(const Options& options, const StageContext& context);
  void run(Frame& frame) const override;

 private:
  using Measure = double(const std::uint8_t* rgb, int width, int height);
  Measure* const measure_;
};

}  // namespace millrace
