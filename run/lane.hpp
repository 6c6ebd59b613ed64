#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gpu/device.hpp"
#include "pipeline/clock.hpp"
#include "run/device_models.hpp"
#include "run/planned_models.hpp"
#include "run/view_stages.hpp"
#include "stages/chain.hpp"

namespace millrace {

/// Batches for which memory ran out outside of calls, done again in halves.
inline constexpr CounterInfo redone_batches{"redone_batches"};

/// A lane: a device with its stream, and one object of each lane stage. All calls come from the lane's own thread.
class Lane {
 public:
  /// Decodes a frame again whose pixels are gone; marks it where that fails.
  using PrepareAgain = std::function<void(Frame&)>;

  /// `context` is that of the stages outside of lanes; the chains, `models` and what it refers to outlive the lane.
  Lane(const std::vector<PlannedView>& views, const StageContext& context, DeviceModels& models,
       std::unique_ptr<Device> device, PrepareAgain prepare_again);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Loads every model and calls it in the shapes of the run; the first lane of a GPU also measures what calls take
  /// alone. Models that do not fit the cache's budget together are loaded when their turn comes. Throws ModelError,
  /// PackageError, or OutOfMemoryError where not even the smallest shapes fit. Returns nanoseconds, without those it
  /// waited for other lanes.
  std::int64_t warm_up(const Clock& clock);

  /// Runs the lane stage at this place of the chain. Where memory runs out outside of a model's call, the batch goes
  /// through all lane stages again in halves; a picture for which it does not last even alone fails. Throws RunEnded
  /// for a lost device.
  void run(std::size_t stage, Batch& batch);

  Device& device() { return *device_; }
  /// Since the end of warm_up().
  DeviceCounts counts() const;

 private:
  CallShape warm_up_model(Engine& engine, const PlannedModel& model);
  const std::vector<StagePlacement<LaneStage>>& stages_of(const Batch& batch) const {
    return stages_[static_cast<std::size_t>(batch.view())];
  }
  void redo_in_halves(Batch& batch);
  void release(Batch& batch);

  DeviceModels& models_;
  const std::unique_ptr<Device> device_;
  StageModels stage_models_;
  const StageContext context_;
  const std::vector<PlannedModel> planned_;
  const PrepareAgain prepare_again_;
  const std::vector<std::vector<StagePlacement<LaneStage>>> stages_;  // by view and place
  DeviceCounts warm_{};
};

/// One sentence's subject for messages: "batch 3 (a.jpg and 15 more)".
std::string name_of(const Batch& batch);

}  // namespace millrace
