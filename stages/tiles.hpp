#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/windows.hpp"
#include "stages/stage.hpp"
#include "stages/window_filter.hpp"
#include "stages/window_mask.hpp"

namespace millrace {

/// How later stages cut the picture into windows, without the size and the order of a window.
struct Tiling {
  WindowOptions windows;
  bool skip_bad = false;  ///< tiles and strips that cannot be read become holes; false: they fail the picture
  EmptyRule empty{};      ///< windows whose places are all empty need no model
  struct Axes {
    bool x = false, y = false, z = false;
  } mirrored{};  ///< the model also sees windows mirrored along these axes, alone and together
  std::shared_ptr<const WindowMask> mask{};  ///< windows without a place of it need no model; null: all do
};
inline constexpr Field<Tiling> tiling{"tiling"};

/// Says how pictures are cut into windows that overlap, for models that see one window at a time.
/// Positions and weights are those of MONAI's sliding_window_inference (gpu/windows.hpp).
/// Reads `pixels`, writes `tiling`.
/// Failures:
/// - too_large: the picture was reduced while it was decoded, but windows are cut from full pixels
/// - those of MaskFolder::read()
class Tiles final : public FrameStage {
 public:
  static constexpr const char* name = "tiles";
  struct Options {
    std::vector<std::string> roi;
    double overlap = 0.25;
    std::string weights = "gaussian";
    double sigma = 0.125;
    int align = 1;
    std::string bad = "fail";
    std::string skip_above, skip_below, mask;
    std::vector<std::string> tta;
    void visit(OptionVisitor& v);
    /// Both throw UsageError for values that are not valid.
    std::vector<int> sides() const;  ///< of `roi`, as the user wrote them
    Tiling tiling() const;           ///< without `roi`, which the package or the user names
  };
  static StageInfo info(const Options& options);

  Tiles(const Options& options, const StageContext& context);
  void run(Frame& frame) const override;

 private:
  const PixelSource& source_;
  std::optional<MaskFolder> masks_;  // none: all windows need the model
  const Tiling tiling_;
};

}  // namespace millrace
