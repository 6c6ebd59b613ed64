#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "pipeline/graph_bodies.hpp"
#include "pipeline/graph_result.hpp"
#include "run/capture.hpp"
#include "run/config.hpp"
#include "run/device_models.hpp"
#include "run/lane.hpp"

namespace millrace {

class Clock;
class PixelCache;
// Without its header, which brings oneTBB.
template <GraphFrame Frame, GraphBatch Batch>
class Graph;

/// What stages, their calls of models and lanes count.
CounterInfos counters_of_run();

/// What an execution works on; outlives it.
struct ExecutionSetup {
  const Config& config;
  const Numbers& numbers;
  const Packages& packages;
  const Devices& devices;
  std::vector<PlannedView> views;  ///< in the order of the plan
  std::string output_folder;
  std::string known_limits_file{};    ///< where limits of memory are kept between runs; empty: nowhere
  PixelCache* pixel_cache = nullptr;  ///< decoded pictures are kept there
};

/// Where frames come from and where finished batches go. Which threads call what: GraphBodies.
struct ExecutionEnds {
  std::string input_root{};  ///< what item paths are relative to
  std::function<std::shared_ptr<Frame>()> next;
  std::function<void()> stop_next{};
  std::function<std::int64_t(const Frame& frame)> file_bytes{};
  std::function<void(Frame& frame)> read;
  /// Lines by slot, failed frames included.
  std::function<void(const Batch& batch, std::vector<std::string> lines)> commit;
};

/// What decoding may take, by view.
std::vector<DecodeLimits> decode_limits(const std::vector<PlannedView>& views, std::int64_t slab_bytes);

/// Lanes that are to warm up before the first frame is admitted.
class LaneStart {
 public:
  void expect(int lanes);
  void arrive();
  /// Returns when all have arrived, or after stop().
  void wait();
  void stop();
  bool stopped() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int missing_ = 0;
  bool stopped_ = false;
};

/// The stages of a chain on the graph: one object of each frame and batch stage, one of each lane stage a lane.
class Execution {
 public:
  /// Makes the stages; loads nothing. Throws UsageError for what a stage says against its options.
  Execution(ExecutionSetup setup, const EngineFactory& factory, const Clock& clock);
  ~Execution();

  /// Once, before run(). Where memory is not that of the host, loads and calls the models and plans its memory, and so
  /// how many lanes there are. Throws as run() does.
  void prepare(ExecutionEnds ends);
  /// Once. Throws what ended the run: StorageError, ModelError, PackageError, UsageError, FramesLost, ...
  Result run();
  /// From any thread at any time.
  void request_stop();

  /// After prepare(), from any thread.
  Snapshot snapshot() const;
  /// From any thread: the lanes are ready, the source asks for frames.
  bool ready() const { return ready_; }

  /// The window of the run proper: from the first admission, when models are loaded and warm, to the last commit.
  Snapshot window(const Result& result) const { return finished(result) - window_begun_; }
  Snapshot window_begun() const { return window_begun_; }
  Snapshot finished(const Result& result) const { return with_gpus(result.finished); }

  const Counters& counters() const { return counters_; }
  CacheStatistics models() const { return statistics(models_); }
  /// Of each device whose memory is its own.
  std::vector<MemoryPlan> memory_plans() const;
  /// Keeps what was learned of memory for later runs.
  void remember_limits() const;
  /// Of all lanes together, without warming up; after run().
  DeviceCounts device_counts() const;
  std::int64_t warm_up_ns() const { return warm_up_ns_; }

 private:
  using FrameGraph = Graph<Frame, Batch>;
  GraphBodies<Frame, Batch> bodies();
  std::shared_ptr<Frame> next();
  void prepare_again(Frame& frame);
  void plan_lanes();
  std::string kind_of_devices() const;
  void commit(Batch& batch);
  Snapshot with_gpus(Snapshot snapshot) const;

  const StagePlacement<const FrameStage>& frame_stage(const Frame& frame, std::size_t index) const {
    return frame_stages_[static_cast<std::size_t>(frame.item.view)][index];
  }

  const ExecutionSetup setup_;
  const Clock& clock_;
  ExecutionEnds ends_{};
  const std::vector<View> view_names_;
  PixelSource source_;
  const KnownLimits known_limits_;
  Counters counters_;
  const std::vector<PlannedModel> planned_models_;
  std::vector<DeviceModels> models_;                                         // of each device
  StageModels stage_models_;                                                 // of the stages before and after the lanes
  const StageContext context_;                                               // of the same
  std::vector<std::vector<StagePlacement<const FrameStage>>> frame_stages_;  // by view
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<std::vector<StagePlacement<const BatchStage>>> batch_stages_;  // by view
  LaneStart lane_start_;
  Capture capture_;
  Snapshot window_begun_;
  std::atomic<bool> ready_{false};
  std::atomic<std::int64_t> warm_up_ns_{0};
  mutable std::mutex graph_mutex_;     // guards the making of graph_ against request_stop()
  std::unique_ptr<FrameGraph> graph_;  // last: its threads use all of the above
};

}  // namespace millrace
