#pragma once

#include <memory>
#include <vector>

#include "base/tensor.hpp"
#include "stages/detect.hpp"
#include "stages/preprocess.hpp"
#include "stages/stage.hpp"
#include "stages/stage_models.hpp"

namespace millrace {

/// What the decoder said of one object: row `row` of logits [N,h,w] and predicted IoU [N], fp32, on the lane's device.
struct MaskLogits {
  std::shared_ptr<const std::vector<Tensor>> outputs;
  int row = 0;
};

/// The logits of all objects of a picture, in the order of `detections`, and how they lie on the picture.
struct PictureLogits {
  std::vector<MaskLogits> objects;
  LetterboxGeometry geometry;
  int input_width = 0, input_height = 0;  ///< the segmenter's input, padding included
};

inline constexpr Field<PictureLogits> mask_logits{"mask_logits"};

/// What the image encoder made of the pictures of a batch: [C,h,w] by slot, on the lane's device; no data where a
/// picture has no objects or failed. Other stages with prompts for this model may read it.
struct ImageEmbeddings {
  std::string model;  ///< folder of the package
  std::vector<Tensor> of_slots;
};
inline constexpr Field<ImageEmbeddings> image_embeddings{"image_embeddings"};
inline constexpr CounterInfo encoder_calls{"encoder_calls"};
inline constexpr CounterInfo decoder_calls{"decoder_calls"};
inline constexpr CounterInfo decoder_boxes{"decoder_boxes"};
inline constexpr CounterInfo decoder_slots{"decoder_slots"};  ///< boxes and padding

/// Runs a SAM-style segmenter: the image encoder once for each picture that has boxes, the mask decoder on boxes packed
/// over the pictures of the batch. Reads `detections` and `model_inputs`, writes `mask_logits` and `image_embeddings`.
/// Device, no wait. Method: Kirillov et al., Segment Anything, 2023, with box prompts and one mask for each.
class Segment final : public LaneStage {
 public:
  static constexpr const char* name = "segment";
  struct Options {
    std::string model;
    int box_batch = 16;
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
