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

/// The vector of these numbers: divided by their length where the package says so.
std::vector<float> embedding(const Package& package, std::span<const float> values);

/// Calls an embedder for every picture of the batch that has not failed, with the input that `preprocess` made. Row i
/// is the picture in slot i. Waits for the device.
HostRows embed_pictures(Batch& batch, const StageContext& context, const StageModel& model, const std::string& stage,
                        const CounterInfo& calls);

inline constexpr CounterInfo embedder_calls{"embedder_calls"};

/// A vector for each picture, or for each object of a picture, of whose box the crop is embedded. Reads `model_inputs`,
/// or `detections` and `uploaded`; writes a side column of the stage's name in the recipe. Device, one wait. A picture
/// with a vector that is not finite fails as non_finite, one that makes the call fail as model_failed.
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
