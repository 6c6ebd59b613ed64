#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "models/cache.hpp"
#include "models/call_limits.hpp"
#include "models/demand.hpp"
#include "pipeline/graph.hpp"
#include "run/capture.hpp"
#include "run/devices.hpp"
#include "run/memory_plan.hpp"
#include "run/setup.hpp"
#include "stages/chain.hpp"
#include "stages/decode.hpp"
#include "stages/pixel_cache.hpp"

namespace millrace {

/// What an execution works on; outlives it.
struct ExecutionSetup {
  const Settings& settings;
  const Chain& chain;
  const Numbers& numbers;
  const Packages& packages;
  const Devices& devices;
  std::vector<View> views;
  std::string input_root{};  ///< what item paths are relative to; may be given later, before run()
  std::string output_folder;
};

/// Where frames come from and where finished batches go.
struct ExecutionEnds {
  std::function<std::shared_ptr<Frame>()> next;
  std::function<void()> stop_next;
  std::function<void(const Batch& batch, std::vector<std::string> lines)>
      commit;  ///< lines by slot, failed frames included
};

/// The stages of a chain on the graph: one object of each frame and batch stage, one of each lane stage a lane.
class Execution {
 public:
  Execution(ExecutionSetup setup, ExecutionEnds ends, const EngineFactory& factory, const Clock& clock);
  ~Execution();

  void set_input_root(std::string folder) { setup_.input_root = std::move(folder); }

  /// Once. Throws what ended the run: StorageError, ModelError, PackageError, UsageError, FramesLost, ...
  Result run();

  /// Where memory is not that of the host: loads and calls the models, plans its memory, and so how many lanes there
  /// are. Before run(), which does it otherwise. Throws as run() does.
  void prepare();
  /// From any thread at any time.
  void request_stop();
  /// After prepare().
  Snapshot snapshot() const { return graph_->snapshot(); }
  /// From any thread: the lanes are ready, the source asks for frames.
  bool ready() const { return ready_; }

  /// The window of the run proper: from the first admission, when models are loaded and warm, to the last commit.
  Snapshot window(const Result& result) const { return finished(result) - window_begun_; }
  Snapshot window_begun() const { return window_begun_; }
  Snapshot finished(const Result& result) const { return with_gpu(result.finished); }

  const StageCounters& counters() const { return counters_; }
  CacheStatistics models() const;  ///< of all devices together
  /// Of each device whose memory is its own.
  const std::vector<MemoryPlan>& memory_plans() const { return memory_plans_; }
  /// Keeps what was learned of memory for later runs.
  void remember_limits() const;
  /// Of all lanes together, without warming up; after run().
  DeviceCounts device_counts() const;
  std::int64_t read_bytes() const { return read_bytes_; }
  std::int64_t warm_up_ns() const { return warm_up_ns_; }

 private:
  using FrameGraph = Graph<Frame, Batch>;
  GraphBodies<Frame, Batch> bodies();
  std::int64_t file_bytes(const Frame& frame) const;
  void read(Frame& frame);
  void plan_lanes();
  std::string kind_of_devices() const;
  void warm_up_packages(std::size_t lane);
  CallShape warm_up_package(Engine& engine, const Package& package, std::size_t lane);
  void run_in_lane(std::size_t stage, Batch& batch, std::size_t lane);
  void redo(Batch& batch, std::size_t lane);
  void let_go(Batch& batch, std::size_t lane);
  void prepare_again(Frame& frame);
  void commit(Batch& batch);
  void wait_for_lanes();
  Snapshot with_gpu(Snapshot snapshot) const;

  ExecutionSetup setup_;
  ExecutionEnds ends_;
  const Clock& clock_;
  DecodeLimits decode_limits_;
  std::int64_t max_file_bytes_ = 0;
  std::string segmenter_;
  std::vector<std::shared_ptr<Demand>> demands_;     // of each device; none on the host
  std::deque<std::mutex> alone_;                     // of each GPU's first device: who warms up or measures there
  std::deque<std::atomic<bool>> measured_;           // of each device
  std::vector<std::shared_ptr<CallLimits>> limits_;  // of each device
  std::vector<std::unique_ptr<ModelCache>> models_;  // of each device
  std::vector<MemoryPlan> memory_plans_;
  KnownLimits known_limits_{KnownLimits::usual_file()};
  StageCounters counters_;
  PixelCache pixel_cache_;
  StageContext context_;                          // of the stages before and after the lanes
  std::vector<std::unique_ptr<Device>> devices_;  // of each lane
  std::vector<DeviceCounts> warm_;                // what warming up asked of each
  std::deque<StageContext> lane_contexts_;        // the same with its device
  std::vector<std::unique_ptr<FrameStage>> frame_stages_;
  std::vector<std::vector<std::unique_ptr<LaneStage>>> lane_stages_;  // of each lane
  std::vector<std::unique_ptr<BatchStage>> batch_stages_;
  Capture capture_;
  Snapshot window_begun_;
  bool begun_ = false;
  std::atomic<bool> ready_{false};
  std::mutex lanes_mutex_;
  std::condition_variable lanes_changed_;
  int lanes_to_start_ = 0;
  bool stopping_ = false;
  std::atomic<std::int64_t> read_bytes_{0};
  std::atomic<std::int64_t> warm_up_ns_{0};
  std::unique_ptr<FrameGraph> graph_;  // last: its threads use all of the above
};

}  // namespace millrace
