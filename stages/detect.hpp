#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/ops/find_boxes.hpp"
#include "stages/preprocess.hpp"
#include "stages/stage.hpp"
#include "stages/stage_models.hpp"

namespace millrace {

/// Box in picture pixels after EXIF orientation, corners, clipped to the picture.
struct Detection {
  float x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  float score = 0;
  int class_id = 0;
};

/// The objects of a picture, best score first; boxes of a manifest in its order with score 1.
struct Detections {
  std::vector<Detection> list;
  std::shared_ptr<const std::vector<std::string>> class_names;  ///< may be null or shorter than class ids
  /// Name of object i's class; empty when the package has none.
  std::string_view name_of(std::size_t i) const;
};

inline constexpr Keys detection_keys{"box", "score", "class", "name"};
void write_detection(const Detections& detections, std::size_t index, JsonWriter& json);
inline constexpr Field<Detections> detections{"detections", detection_keys, write_detection};

void write_detector(const std::string& package, JsonWriter& json);
/// Name of the package that found the objects, as its model.yaml has it; not written where a manifest gave the boxes.
inline constexpr Field<std::string> detector{"detector", write_detector};

inline constexpr CounterInfo detector_calls{"detector_calls"};
inline constexpr CounterInfo detector_skipped{"detector_skipped"};  ///< pictures whose boxes came from a manifest
inline constexpr CounterInfo truncated_detections{"truncated_detections"};  ///< pictures with more than max_detections

/// Runs a detector, its head and class-aware NMS. Reads `model_inputs`, writes `detections` and `detector`.
/// Device, one wait. A picture with boxes in the manifest is not shown to the detector. A picture whose outputs are not
/// finite fails as non_finite, one that makes the call fail as model_failed; its neighbours' results are those of a
/// call in which it is blank.
class Detect final : public LaneStage {
 public:
  static constexpr const char* name = "detect";
  struct Options {
    std::string model;
    double conf = 0.25;
    double iou = 0.45;
    int max_detections = 100;
    double min_area = 0;
    std::vector<std::string> classes;
    bool class_agnostic = false;
    int exec_batch = 0;
    bool pad = false;
    bool skip_with_boxes = true;
    void visit(OptionVisitor& v);
  };
  static StageInfo info(const Options& options);

  Detect(const Options& options, const StageContext& context);
  void run(Batch& batch) override;

 private:
  std::shared_ptr<const std::vector<std::string>> class_names() const;
  void from_manifest(Frame& frame) const;
  BoxSearch search() const;
  void take(Frame& frame, FoundBoxes found) const;

  Options options_;
  const StageContext& context_;
  std::optional<StageModel> model_;  // none: boxes come from the manifest
};

}  // namespace millrace
