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

/// A box in picture pixels after EXIF orientation: two corners, clipped to the picture.
struct Detection {
  float x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  float score = 0;
  int class_id = 0;
};

/// The objects of a picture, best score first.
/// Boxes from a manifest are in the order of the manifest and have score 1.
struct Detections {
  std::vector<Detection> list;
  /// By class id. Null without a detector. A class id from a manifest may be beyond its end.
  std::shared_ptr<const std::vector<std::string>> class_names;
  /// The name of object i's class; empty if the class has none.
  std::string_view name_of(std::size_t i) const;
};

inline constexpr Keys detection_keys{"box", "score", "class", "name"};
void write_detection(const Detections& detections, std::size_t index, JsonWriter& json);
inline constexpr Field<Detections> detections{"detections", detection_keys, write_detection};

void write_detector(const std::string& package, JsonWriter& json);
/// The name of the detector's package from its model.yaml. Not written for a picture with boxes from a manifest.
inline constexpr Field<std::string> detector{"detector", write_detector};

inline constexpr CounterInfo detector_calls{"detector_calls"};
/// Pictures that keep the boxes of the manifest instead of the detector's.
inline constexpr CounterInfo detector_skipped{"detector_skipped"};
/// Pictures with more objects than max_detections.
inline constexpr CounterInfo truncated_detections{"truncated_detections"};

/// Runs a detector, decodes its head and suppresses overlapping boxes of the same class (NMS).
/// Reads `model_inputs`, writes `detections` and `detector`. Waits for the device once for each batch.
/// Pictures with boxes in the manifest keep them, unless skip_with_boxes is off. A call with such pictures alone is left
/// out.
/// Failures:
/// - non_finite: the detector's outputs for the picture are not finite
/// - model_failed: the detector returned a class number that it does not have
/// - model_failed: the picture makes the model call fail; the others get the results of a call in which it is blank
/// - no_boxes: the view has no detector, and the manifest has no boxes for the picture
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
  std::optional<StageModel> model_;  // empty if no detector is named: all boxes come from the manifest
};

}  // namespace millrace
