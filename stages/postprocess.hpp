#pragma once

#include <cstdint>
#include <vector>

#include "gpu/ops/outline.hpp"
#include "stages/segment.hpp"
#include "stages/stage.hpp"

namespace millrace {

/// A mask at the picture's full size as COCO run lengths: column by column, zeros first.
struct Mask {
  std::vector<std::uint32_t> counts;
  int width = 0, height = 0;
  std::int64_t area = 0;
  float predicted_iou = 0;
};

inline constexpr Keys mask_keys{"rle", "iou", "area"};
void write_mask(const std::vector<Mask>& masks, std::size_t index, JsonWriter& json);
inline constexpr Field<std::vector<Mask>> masks{"masks", mask_keys, write_mask};

/// Turns logits into masks at full size. It traces their outline (gpu/ops/outline.hpp) and needs no raster.
/// Reads `mask_logits`. Writes `masks`, in the order of `detections`.
/// Waits for the device once for each batch.
/// A picture with logits or a predicted IoU that is not finite fails as non_finite.
class Postprocess final : public LaneStage {
 public:
  static constexpr const char* name = "postprocess";
  struct Options {
    double mask_threshold = 0;
    void visit(OptionVisitor& v);
  };
  static StageInfo info(const Options& options);

  Postprocess(const Options& options, const StageContext& context);
  void run(Batch& batch) override;

 private:
  static void take(Frame& frame, std::vector<OutlinedMask> outlined);

  Options options_;
  const StageContext& context_;
};

}  // namespace millrace
