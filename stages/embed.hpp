#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/results/side_column.hpp"
#include "stages/model_call.hpp"
#include "stages/preprocess.hpp"
#include "stages/stage.hpp"
#include "stages/stage_models.hpp"

namespace millrace {

/// The output of an embedder as a vector: divided by its length if the package says `normalised`.
/// A vector of zeros stays as it is.
std::vector<float> embedding(const Package& package, std::span<const float> values);

inline constexpr CounterInfo embedder_calls{"embedder_calls"};

/// Makes a vector for each picture, or for each object from the crop of its box.
/// For pictures it reads `model_inputs`, for objects `detections` and `uploaded`.
/// Writes a side column that has the stage's name in the recipe.
/// Waits for the device once for each batch.
/// Failures:
/// - non_finite: float16 cannot hold a number of a vector
/// - model_failed: the picture makes the model call fail
class Embed final : public LaneStage {
 public:
  static constexpr const char* name = "embed";
  struct Options {
    std::string model;
    std::string of = "picture";
    int exec_batch = 0;
    bool pad = false;
    void visit(OptionVisitor& v);
  };
  struct Own {
    explicit Own(std::string stage_name) : name(std::move(stage_name)) {}
    Own(const Own&) = delete;
    const std::string name;
    // The stage writes one of them, as its option `of` says.
    const Field<HalfRows> of_pictures{name, RowsOf::pictures}, of_objects{name, RowsOf::objects};
  };
  static StageInfo info(const Options& options, const Own& own);

  Embed(const Options& options, const StageContext& context, const Own& own);
  void run(Batch& batch) override;

 private:
  void embed_objects(Batch& batch) const;
  void set(Frame& frame, const Field<HalfRows>& field, const HostRows& vectors, std::size_t first,
           std::size_t count) const;

  const Options options_;
  const StageContext& context_;
  const Own& own_;
  const StageModel model_;
};

}  // namespace millrace
