#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/tensor.hpp"
#include "gpu/device.hpp"
#include "gpu/letterbox.hpp"
#include "stages/stage.hpp"

namespace millrace {

/// The pictures of a batch as the input of a model, on the lane's device.
/// Rows of failed frames contain zeros, so that the shape of a call follows from the plan alone.
/// The lane reuses the storage for the next batch.
struct ModelInput {
  Tensor images;                            ///< [slots,3,H,W] in the model's type; a frame's row is its slot
  std::vector<LetterboxGeometry> geometry;  ///< by slot; undefined for failed frames
};

/// The raster of `pixels` in the memory of the lane's device, for lane stages that need crops of it.
inline constexpr Field<DeviceImage> uploaded{"uploaded"};

/// By the folder of the package.
using ModelInputs = std::map<std::string, ModelInput>;
inline constexpr Field<ModelInputs> model_inputs{"model_inputs"};

/// Makes the inputs of all models that take whole pictures, from one raster for each frame.
/// The package's model.yaml names filter, rounding and padding of the resize, colour order, scale, mean and deviation.
/// Reads `pixels`, writes `uploaded` and `model_inputs`. Does not wait for the device.
/// Uploads each raster once. The chain frees `uploaded` after its last reader.
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
  std::vector<Tensor> buffers_;  // by StageModels::PictureInput::buffer; each as large as its largest input so far
};

}  // namespace millrace
