#pragma once

#include <memory>
#include <vector>

#include "base/tensor.hpp"
#include "gpu/outline.hpp"
#include "stages/detect.hpp"
#include "stages/preprocess.hpp"
#include "stages/stage.hpp"
#include "stages/stage_models.hpp"

namespace millrace {

/// The decoder's result for one object, on the lane's device.
struct MaskLogits {
  std::shared_ptr<const std::vector<Tensor>> outputs;  ///< first: logits [N,h,w]; last: predicted IoU [N]; both fp32
  int row = 0;                                         ///< of the object in both
};

/// The logits of all objects of a picture, in the order of `detections`.
struct PictureLogits {
  std::vector<MaskLogits> objects;
  MaskGeometry geometry;  ///< of the masks
};

/// The steps from the logits of a segmenter to a mask of a picture at this position in its input.
MaskGeometry mask_geometry(const Package& package, const LetterboxGeometry& picture);

inline constexpr Field<PictureLogits> mask_logits{"mask_logits"};

/// The output of the image encoder for the pictures of a batch, on the lane's device.
/// Other stages with prompts for this model may read it.
struct ImageEmbeddings {
  std::string model;            ///< folder of the package
  std::vector<Tensor> by_slot;  ///< [C,h,w] by slot; no data if the picture has no objects or has failed
};
inline constexpr Field<ImageEmbeddings> image_embeddings{"image_embeddings"};
inline constexpr CounterInfo encoder_calls{"encoder_calls"};
inline constexpr CounterInfo decoder_calls{"decoder_calls"};
inline constexpr CounterInfo decoder_boxes{"decoder_boxes"};
inline constexpr CounterInfo decoder_slots{"decoder_slots"};  ///< rows of all decoder calls: boxes and padding

/// Runs a SAM-style segmenter with box prompts: one mask for each box (Kirillov et al., Segment Anything, 2023).
/// The image encoder sees each picture with boxes once. Decoder calls contain boxes of all pictures of the batch.
/// Reads `detections` and `model_inputs`, writes `mask_logits` and `image_embeddings`.
/// Does not wait for the device.
/// A picture that makes a model call fail, fails as model_failed.
class Segment final : public LaneStage {
 public:
  static constexpr const char* name = "segment";
  struct Options {
    std::string model;
    int box_batch = 64;
    bool pack = true;
    int image_batch = 1;
    bool pad = false;
    void visit(OptionVisitor& v);
  };
  static StageInfo info(const Options& options);

  Segment(const Options& options, const StageContext& context);
  void run(Batch& batch) override;

 private:
  struct Prompt;
  struct Work;
  void encode_pictures(Batch& batch, Work& work) const;
  void decode_boxes(Batch& batch, Work& work) const;

  Options options_;
  const StageContext& context_;
  const StageModel model_;
};

}  // namespace millrace
