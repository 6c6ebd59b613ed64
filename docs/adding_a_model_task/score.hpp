#pragma once

#include <string>
#include <vector>

#include "stages/preprocess.hpp"
#include "stages/stage.hpp"
#include "stages/stage_models.hpp"

namespace millrace {

void write_scores(const std::vector<float>& scores, JsonWriter& json);
inline constexpr Field<std::vector<float>> scores{"scores", write_scores};

inline constexpr CounterInfo scorer_calls{"scorer_calls"};

/// The numbers that a scorer gives to each picture. Reads `model_inputs`, writes `scores`. Device, one wait. A picture
/// with a score that is not finite fails as non_finite, one that makes the call fail as model_failed.
class Score final : public LaneStage {
 public:
  static constexpr const char* name = "score";
  struct Options {
    std::string model;
    void visit(OptionVisitor& v);
  };
  static StageInfo info(const Options& options);

  Score(const Options& options, const StageContext& context);
  void run(Batch& batch) override;

 private:
  const StageContext& context_;
  const StageModel model_;
};

}  // namespace millrace
