#pragma once

#include <cstdint>
#include <vector>

#include "gpu/ops/outline.hpp"
#include "stages/segment.hpp"
#include "stages/stage.hpp"

namespace millrace {

/// A mask at the picture's full size as column-major COCO runs, zeros first.
struct Mask {
  std::vector<std::uint32_t> counts;
  int width = 0, height = 0;
  std::int64_t area = 0;
  float predicted_iou = 0;
};

inline constexpr Keys mask_keys{"rle", "iou", "area"};
void write_mask(const std::vector<Mask>& masks, std::size_t index, JsonWriter& json);
inline constexpr Field<std::vector<Mask>> masks{"masks", mask_keys, write_mask};

/// Turns logits into masks at full size by their outline (gpu/outline.hpp), without a raster. Reads `mask_logits`,
/// writes `masks`, in the order of `detections`. Device, one wait.
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
  static void take(Frame& frame, std::vector<TracedMask> traced);

  Options options_;
  const StageContext& context_;
};

}  // namespace millrace
