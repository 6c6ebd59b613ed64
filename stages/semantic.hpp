#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/tensor.hpp"
#include "gpu/ops/finish_rows.hpp"
#include "stages/class_map.hpp"
#include "stages/model_call.hpp"
#include "stages/points.hpp"
#include "stages/stage.hpp"
#include "stages/stage_models.hpp"
#include "stages/tiles.hpp"
#include "stages/window_layout.hpp"

namespace millrace {

inline constexpr CounterInfo window_calls{"window_calls"};
inline constexpr CounterInfo windows_cut{"windows"};
inline constexpr CounterInfo windows_skipped{"windows_skipped"};  ///< those of them that need no model
inline constexpr CounterInfo label_maps{"label_maps"};  ///< pictures whose labels left the device in one piece
inline constexpr CounterInfo slabs_in{"slabs_in"};      ///< slabs of rows that went to the device
inline constexpr CounterInfo slabs_out{"slabs_out"};    ///< slabs of labels that left the device

/// Finds a class for each pixel of pictures, or each voxel of volumes, with a model that sees one window at a time.
/// It blends the outputs of overlapping windows with weights, then applies the activation of the package.
/// Calls contain windows of all pictures of the batch, and all calls have one shape. The sums of a picture are as high
/// as a window. A row is finished and leaves as soon as no further window touches it.
/// Reads `pixels` and `tiling`. Writes `semantic`, or `points` if the package gives heatmaps. Writes `class_values` if the
/// options ask for it, and `hole_pixels` for a picture with parts that cannot be read, if `tiling` allows them.
/// Uploads each picture once. Waits for the device once for each batch.
/// The sums of a picture that is alone in its batch may not fit into the device's memory. Then they are in pinned memory
/// of the host, which is slower. The frame is marked as split, and its results have the same bytes.
/// The labels of a picture with many windows leave slab by slab, with a wait each, into a file in `unfinished/`. After a
/// kill the picture continues there. If its file is read in parts, its rows come in slabs too, so memory does not depend
/// on its height. Heatmaps leave slab by slab too, unless they are not higher than a window. Nothing is kept of them.
/// Failures:
/// - non_finite: a blended value is not finite, or one of a picture by whose statistics the package scales
/// - model_failed: a window makes the model call fail
/// - unsupported_format: a volume for a model of pictures, or the other way round; a volume that does not say how it lies,
///   for a model that asks for an orientation
class Semantic final : public LaneStage {
 public:
  static constexpr const char* name = "semantic";
  struct Options {
    std::string model;
    int window_batch = 1;
    std::string values = "none";
    int instances = 0;
    int points = 1;
    double point_threshold = 0.5;
    void visit(OptionVisitor& v);
  };
  static StageInfo info(const Options& options);

  Semantic(const Options& options, const StageContext& context);
  void run(Batch& batch) override;
  std::int64_t bytes(const Frame& frame) const override;
  void trim() override { weights_.clear(); }

 private:
  struct Item;
  struct Work;
  struct Weights {
    WindowOptions of;
    std::shared_ptr<const float[]> values;  // on the device
  };
  std::optional<WindowLayout> layout_of(Frame& frame) const;
  void begin(Frame& frame, int slot, Work& work);
  void begin_source(Item& item, Frame& frame, int ways) const;
  bool check_raster(Frame& frame) const;
  bool needs_model(int row, Work& work) const;
  void begin_results(Item& item, Frame& frame, const WindowOptions& options) const;
  Tensor cut(std::span<const CallRow> rows, int count, Work& work) const;
  void load_rows(std::span<const CallRow> rows, Work& work) const;
  void take(std::span<const TakenRow> rows, Work& work) const;
  void begin_sums(Item& item) const;
  void end_sums(Item& item) const;
  void end(Item& item) const;
  void finish(const std::vector<Item*>& items) const;
  void finish_before(Item& item, int band) const;
  void take_slab(Item& item, int first, int count) const;
  void download(Item& item) const;
  void deliver(Item& item) const;
  void deliver_labels(Item& item, std::shared_ptr<const void> results) const;
  void deliver_points(Item& item) const;
  const float* weights_of(const WindowOptions& options);

  const Options options_;
  const StageContext& context_;
  const StageModel model_;
  const LabelRule rule_;
  const bool heatmaps_;
  std::vector<Weights> weights_;
};

}  // namespace millrace
