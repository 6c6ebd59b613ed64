#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
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
#include "stages/call_costs.hpp"

namespace millrace {

class Clock;
class PixelCache;
class TraceRecorder;
// Declared here, because its header includes oneTBB.
template <GraphFrame Frame, GraphBatch Batch>
class Graph;

/// The counters of all stages, of model calls and of lanes.
CounterInfos counters_of_run();

/// The input of an execution. Everything that it refers to must outlive the execution.
struct ExecutionSetup {
  const Config& config;
  const ResolvedConfig& resolved;
  const Packages& packages;
  const Devices& devices;
  std::vector<PlannedView> views;  ///< in the order of the plan
  std::string output_folder;
  std::string known_limits_file{};    ///< file that keeps limits of model calls between runs; empty: none
  PixelCache* pixel_cache = nullptr;  ///< keeps decoded pictures; null: none
  /// Gets the trace; null: none. Its last visit() must come before the execution's end.
  TraceRecorder* recorder = nullptr;
};

/// Functions that bring frames and take finished batches. GraphBodies says on which threads they are called.
struct ExecutionEnds {
  std::string input_root{};  ///< folder from which relative paths of items start
  bool idle = false;         ///< `next` returns no frame, so no model is loaded
  std::function<std::shared_ptr<Frame>()> next;
  std::function<void()> stop_next{};
  std::function<std::int64_t(const Frame& frame)> file_bytes{};
  std::function<void(Frame& frame)> read;
  /// `lines` are by slot, failed frames included.
  std::function<void(const Batch& batch, std::vector<std::string> lines)> commit;
};

/// The limits of decoding by view.
std::vector<DecodeLimits> decode_limits(const std::vector<PlannedView>& views, std::int64_t slab_bytes);

/// Lets the source wait until all lanes have warmed up. All functions may be called from any thread.
class LaneStart {
 public:
  /// Call before the lanes start.
  void expect(int lanes);
  /// A lane has warmed up, in this time.
  void arrive(std::int64_t begun_ns, std::int64_t ended_ns);
  /// From the begin of the first warm-up to the end of the last so far. Lanes can warm up at the same time.
  std::int64_t time_ns() const;
  /// Returns when all lanes have arrived, or after stop().
  void wait();
  void stop();
  bool stopped() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int missing_ = 0;
  bool stopped_ = false;
  std::int64_t begun_ns_ = std::numeric_limits<std::int64_t>::max(), ended_ns_ = 0;
};

/// Runs the stages of the views' chains on the graph.
/// Frame and batch stages have one object for all threads. Lane stages have one object for each lane.
/// A view with options of its own has its own objects.
class Execution {
 public:
  /// Makes the stages and loads no model. Throws UsageError if a stage refuses its options.
  Execution(ExecutionSetup setup, const EngineFactory& factory, const Clock& clock);
  ~Execution();

  /// Call once, before run(). Throws as run() does.
  /// If devices have their own memory, it loads and calls the models, and plans memory and number of lanes.
  void prepare(ExecutionEnds ends);
  /// Call once. Throws the error that ended the run: StorageError, ModelError, PackageError, UsageError, FramesLost...
  Result run();
  /// Any thread may call it at any time.
  void request_stop();

  /// After prepare(), any thread may call it.
  Snapshot snapshot() const;
  /// Likewise, with the GPUs as a resource.
  Snapshot snapshot_with_gpus() const { return with_gpus(snapshot()); }
  /// Likewise. Empty without lanes, and if the clock measures nothing.
  LaneTimeline::Kept timeline() const;
  /// Whether the lanes are warm and the source asks for frames. Any thread may call it.
  bool ready() const { return ready_; }

  /// The window that counts as the run: from the first admission, when all models are warm, to the last commit.
  /// Call it after run(), even if that threw. If run() was not called, the window is not `measured`.
  Snapshot window() const { return finished_ - window_begun_; }
  Snapshot window_begun() const { return window_begun_; }
  Snapshot finished() const { return finished_; }
  int lanes() const { return static_cast<int>(lanes_.size()); }

  const Counters& counters() const { return counters_; }
  const CallCosts& call_costs() const { return call_costs_; }
  CacheStatistics models() const { return statistics(models_); }
  /// One for each device that has its own memory.
  std::vector<MemoryPlan> memory_plans() const;
  /// Keeps the learned limits of model calls for later runs.
  void remember_limits() const;
  /// Of all lanes together, without their warm-up. Call it after run().
  DeviceCounts device_counts() const;
  std::map<std::string, CountsByCall> device_counts_by_stage() const;
  /// By stage, between the host and GPUs. Empty if models run on the host.
  std::map<std::string, std::int64_t> copied_bytes() const { return millrace::copied_bytes(models_); }
  /// graph_counts() and graph_notes() of all devices.
  std::map<std::string, std::int64_t> graph_counts() const { return millrace::graph_counts(models_); }
  std::vector<std::string> graph_notes() const { return millrace::graph_notes(models_); }
  /// The parts of the start; zeros before all lanes are warm. Any thread may call it.
  StartTimes start_times() const;
  /// Planning of memory, with its calls of models, and the warm-up of the lanes.
  std::int64_t warm_up_ns() const { return planning_ns_ + lane_start_.time_ns(); }

 private:
  using FrameGraph = Graph<Frame, Batch>;
  GraphBodies<Frame, Batch> bodies();
  std::shared_ptr<Frame> next();
  void add_stage_bytes(Frame& frame) const;
  void prepare_again(Frame& frame);
  void plan_lanes();
  std::string kind_of_devices() const;
  void commit(Batch& batch);
  Snapshot with_gpus(Snapshot snapshot) const;

  const LinkedStage<const FrameStage>& frame_stage(const Frame& frame, std::size_t index) const {
    return frame_stages_[static_cast<std::size_t>(frame.item.view)][index];
  }

  const ExecutionSetup setup_;
  const Clock& clock_;
  ExecutionEnds ends_{};
  const std::vector<View> view_names_;
  const std::int64_t begun_ns_;
  PixelSource source_;  // makes the first stream of a GPU
  const KnownLimits known_limits_;
  Counters counters_;
  CallCosts call_costs_;
  const std::vector<PlannedModel> planned_models_;
  std::vector<DeviceModels> models_;                                      // by device
  StageModels stage_models_;                                              // for stages outside of lanes
  const StageContext context_;                                            // for the same stages
  std::vector<std::vector<LinkedStage<const FrameStage>>> frame_stages_;  // by view
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<std::vector<LinkedStage<const BatchStage>>> batch_stages_;  // by view
  LaneStart lane_start_;
  Capture capture_;
  Snapshot window_begun_;
  Snapshot finished_ = [] {
    Snapshot none;
    none.measured = false;
    return none;
  }();
  std::atomic<bool> ready_{false};
  std::int64_t streams_ns_ = 0;
  std::int64_t planning_ns_ = 0;
  mutable std::mutex graph_mutex_;     // guards graph_ in prepare() and request_stop()
  std::unique_ptr<FrameGraph> graph_;  // last member, because its threads use all of the above
};

}  // namespace millrace
