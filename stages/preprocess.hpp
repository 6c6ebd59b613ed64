#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/tensor.hpp"
#include "gpu/device.hpp"
#include "gpu/letterbox.hpp"
#include "stages/stage.hpp"

namespace millrace {

/// The pictures of a batch as a model takes them, on the lane's device: images [slots,3,H,W] of the model's type; the
/// row of a frame is its slot. Rows of failed frames hold zeros, so that the shape of a call follows from the plan
/// alone. The storage belongs to the lane and is used again.
struct ModelInput {
  Tensor images;
  std::vector<LetterboxGeometry> geometry;  ///< one a slot; undefined for failed frames
};

/// The raster of a frame in the lane's memory, as `pixels` has it: for stages of the lane that take parts of it.
inline constexpr Field<DeviceImage> uploaded{"uploaded"};

/// By folder of the package.
using ModelInputs = std::map<std::string, ModelInput>;
inline constexpr Field<ModelInputs> model_inputs{"model_inputs"};

/// Makes the inputs of all models that see whole pictures from one decoded raster: resize with the filter, rounding and
/// padding that model.yaml names, colour order, scale, mean and deviation. Reads `pixels`, writes `uploaded` and
/// `model_inputs`. Device: each raster is uploaded once, and stays as long as a stage behind reads `uploaded`.
class Preprocess final : public LaneStage {
 public:
  static constexpr const char* name = "preprocess";
  struct Options {
    void visit(OptionVisitor& /*v*/) {}
  };
  static StageInfo info(const Options& options);

  Preprocess(const Options& options, const StageContext& context);
  void run(Batch& batch) override;
  void trim() override;

 private:
  ModelInput make(const Batch& batch, const std::vector<DeviceImage>& rasters, const Package& package,
                  Tensor& buffer) const;

  const StageContext& context_;
  std::vector<Tensor> buffers_;  // by StageModels::PictureInput::buffer; as large as the largest input so far
};

}  // namespace millrace
