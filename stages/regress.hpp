#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stages/preprocess.hpp"
#include "stages/stage.hpp"
#include "stages/stage_models.hpp"

namespace millrace {

/// The values that a regressor gives to a picture.
struct Regressed {
  std::vector<float> values;
  std::shared_ptr<const std::vector<std::string>> names;  ///< of the values, in their order
};
/// Writes {"age": 34.2, ...}. A number is the shortest text that reads back as the same float32.
void write_regressed(const Regressed& regressed, JsonWriter& json);

inline constexpr CounterInfo regressor_calls{"regressor_calls"};

/// Gives numbers with names to whole pictures, such as an age.
/// Reads `model_inputs`. Writes a field that has the stage's name in the recipe.
/// Waits for the device once for each batch.
/// Failures:
/// - non_finite: a value of the picture is not finite
/// - model_failed: the picture makes the model call fail
class Regress final : public LaneStage {
 public:
  static constexpr const char* name = "regress";
  struct Options {
    std::string model;
    int exec_batch = 0;
    bool pad = false;
    void visit(OptionVisitor& v);
  };
  struct Own {
    explicit Own(std::string stage_name) : name(std::move(stage_name)) {}
    Own(const Own&) = delete;
    const std::string name;
    const Field<Regressed> values{name, write_regressed};
  };
  static StageInfo info(const Options& options, const Own& own);

  Regress(const Options& options, const StageContext& context, const Own& own);
  void run(Batch& batch) override;

 private:
  const StageContext& context_;
  const Own& own_;
  const StageModel model_;
};

}  // namespace millrace
