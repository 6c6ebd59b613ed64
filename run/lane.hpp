#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "pipeline/clock.hpp"
#include "run/device_models.hpp"
#include "run/planned_models.hpp"
#include "run/start_times.hpp"
#include "run/view_stages.hpp"
#include "stages/chain.hpp"

namespace millrace {

/// Batches that were retried in halves, because memory ran out outside of model calls.
inline constexpr CounterInfo redone_batches{"redone_batches"};

/// A lane: a device with its stream, and its own objects of the lane stages.
/// warm_up() and run() are called on the lane's own thread.
class Lane {
 public:
  /// Decodes a frame again if its pixels were freed. If that fails, marks the frame as failed.
  using PrepareAgain = std::function<void(Frame&)>;

  /// `context` is that of the stages outside of lanes.
  /// The chains of `views`, `models`, and everything that `context` refers to must outlive the lane.
  Lane(const std::vector<PlannedView>& views, const StageContext& context, DeviceModels& models,
       std::unique_ptr<Device> device, PrepareAgain prepare_again);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Loads every model and calls it in the shapes of the run. On the host, the lanes share the models among them.
  /// The first lane of a GPU also measures the time that each call takes alone. The others wait for it. Then they call
  /// the models at the same time.
  /// If the models exceed the budget of the cache, the others are loaded later, when a stage needs them.
  /// Throws ModelError or PackageError, or OutOfMemoryError if not even the smallest shapes fit.
  void warm_up();

  /// Runs the lane stage at this position among the lane stages of the chain.
  /// If memory runs out outside of a model call, the batch goes through all lane stages again in halves.
  /// A picture that does not fit even alone fails.
  /// Throws RunEnded if the device is lost, or if a model does not do what its package says.
  void run(std::size_t stage, Batch& batch);

  /// Bytes that the lane stages need for a picture in addition to its pixels. Any thread may call it.
  std::int64_t bytes(const Frame& frame) const;

  Device& device() { return *device_; }
  /// Not while warm_up() runs.
  const WarmUpTimes& warm_up_times() const { return warm_up_times_; }
  /// Counts since the end of warm_up().
  DeviceCounts counts() const { return device_->counts() - warm_; }
  /// The same by the name of the stage. Not while a stage runs.
  const std::map<std::string, CountsByCall>& counts_by_stage() const { return device_->counts_by_stage(); }

 private:
  void share_warm_up();
  void call_models_in_turn();
  void call_models(bool measure);
  void call_model(const PlannedModel& model, bool measure);
  CallShape warm_up_model(Engine& engine, const PlannedModel& model);
  const std::vector<LinkedStage<LaneStage>>& stages_of(const Batch& batch) const {
    return stages_[static_cast<std::size_t>(batch.view())];
  }
  void run_on_device(const ChainLink& link, LaneStage& stage, Batch& batch);
  void redo_in_halves(Batch& batch);
  void release(Batch& batch);

  DeviceModels& models_;
  const std::unique_ptr<Device> device_;
  StageModels stage_models_;
  const StageContext context_;
  const std::vector<PlannedModel> planned_;
  const PrepareAgain prepare_again_;
  const std::vector<std::vector<LinkedStage<LaneStage>>> stages_;  // by view and position
  WarmUpTimes warm_up_times_{};
  DeviceCounts warm_{};
};

/// For messages: "batch 3 (a.jpg and 15 more)".
std::string name_of(const Batch& batch);

}  // namespace millrace
