#include "run/execution.hpp"

#include <algorithm>
#include <utility>

#include "io/files/files.hpp"
#include "pipeline/graph.hpp"
#include "run/run_ended.hpp"
#include "stages/decode.hpp"
#include "stages/encode.hpp"

namespace millrace {
namespace {

void run_after_lane(const ChainLink& link, const BatchStage& stage, Batch& batch) {
  try {
    run_stage(link, stage, batch);
  } catch (const StorageError& error) {
    throw RunEnded(link.info.name, error);
  }
}

[[noreturn]] void rethrow(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const RunEnded& ended) {
    std::rethrow_exception(ended.cause());
  }
}

}  // namespace

CounterInfos counters_of_run() {
  CounterInfos all = counters_of();
  all.push_back(&redone_batches);
  return all;
}

void LaneStart::expect(int lanes) {
  const std::lock_guard lock(mutex_);
  missing_ = lanes;
}

void LaneStart::arrive() {
  const std::lock_guard lock(mutex_);
  --missing_;
  changed_.notify_all();
}

void LaneStart::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return missing_ <= 0 || stopped_; });
}

void LaneStart::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

bool LaneStart::stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

Execution::Execution(ExecutionSetup setup, const EngineFactory& factory, const Clock& clock)
    : setup_(std::move(setup)),
      clock_(clock),
      decode_limits_(Decode::limits(setup_.config.chain.options<Decode>(), setup_.numbers.graph.slab_bytes)),
      segmenter_(setup_.config.chain.find("segment") != nullptr ? setup_.config.models.segmenter : ""),
      known_limits_(setup_.known_limits_file),
      counters_(counters_of_run()),
      models_(make_device_models(setup_.devices, setup_.numbers, setup_.config.models.budget, factory)),
      context_{setup_.views,
               segmenter_,
               setup_.output_folder,
               ends_.input_root,
               decode_limits_,
               setup_.numbers.batch_size,
               setup_.packages,
               *models_.front().cache,
               counters_,
               nullptr,
               image_type(setup_.numbers.precisions.detector),
               image_type(setup_.numbers.precisions.segmenter),
               pixel_memory(setup_.devices),
               setup_.pixel_cache},
      capture_(parse_capture(setup_.config.trace.capture), profiler_of(setup_.devices)) {
  const Chain& chain = setup_.config.chain;
  for (const ChainLink* link : chain.of(Section::frame))
    frame_stages_.push_back(link->entry->make_frame_stage(link->options, context_));
  for (const ChainLink* link : chain.of(Section::batch))
    batch_stages_.push_back(link->entry->make_batch_stage(link->options, context_));
  for (int lane = 0; lane < setup_.numbers.graph.lanes; ++lane) {
    const std::size_t device = setup_.devices.of_lane(lane);
    lanes_.push_back(std::make_unique<Lane>(chain, context_, models_[device],
                                            make_device(setup_.devices, device, "lane " + std::to_string(lane)),
                                            [this](Frame& frame) { prepare_again(frame); }));
  }
}

Execution::~Execution() = default;

void Execution::prepare(ExecutionEnds ends) {
  ends_ = std::move(ends);
  plan_lanes();
  GraphOptions options = setup_.numbers.graph;
  options.lanes = static_cast<int>(lanes_.size());
  auto graph = std::make_unique<FrameGraph>(options, bodies(), clock_);
  const std::lock_guard lock(graph_mutex_);
  graph_ = std::move(graph);
}

void Execution::request_stop() {
  lane_start_.stop();
  const std::lock_guard lock(graph_mutex_);
  if (graph_ != nullptr) graph_->request_stop();  // else run() sees it
}

Snapshot Execution::snapshot() const { return graph_->snapshot(); }

Result Execution::run() {
  if (lane_start_.stopped()) graph_->request_stop();
  Result result = graph_->run();
  capture_.end();
  if (!ready_) window_begun_ = with_gpus(result.begun);
  if (result.error) rethrow(result.error);
  return result;
}

GraphBodies<Frame, Batch> Execution::bodies() {
  const Chain& chain = setup_.config.chain;
  GraphBodies<Frame, Batch> bodies;
  bodies.next = [this] { return next(); };
  bodies.stop_next = [this] {
    lane_start_.stop();
    if (ends_.stop_next) ends_.stop_next();
  };
  bodies.file_bytes = ends_.file_bytes;
  bodies.read = ends_.read;
  bodies.bytes = [](const Frame& frame) { return ByteNeed(frame.info.pixel_bytes, frame.info.working_bytes); };
  std::size_t index = 0;
  for (const ChainLink* link : chain.of(Section::frame)) {
    const FrameStage& stage = *frame_stages_[index++];
    bodies.frame_stages.push_back({link->info.name, [link, &stage](Frame& frame) { run_stage(*link, stage, frame); }});
  }
  index = 0;
  for (const ChainLink* link : chain.of(Section::lane)) {
    bodies.lane_stages.push_back({link->info.name, [this, index](Batch& batch, int lane) {
                                    lanes_[static_cast<std::size_t>(lane)]->run(index, batch);
                                  }});
    ++index;
  }
  index = 0;
  for (const ChainLink* link : chain.of(Section::batch)) {
    const BatchStage& stage = *batch_stages_[index++];
    bodies.batch_stages.push_back(
        {link->info.name, [link, &stage](Batch& batch) { run_after_lane(*link, stage, batch); }});
  }
  lane_start_.expect(bodies.lane_stages.empty() ? 0 : static_cast<int>(lanes_.size()));
  bodies.lane_start = [this](int lane) {
    warm_up_ns_ += lanes_[static_cast<std::size_t>(lane)]->warm_up(clock_);
    lane_start_.arrive();
  };
  bodies.make_batch = [](std::vector<std::shared_ptr<Frame>> frames) {
    for (const auto& frame : frames) frame->file = {};  // where no stage decoded it; its credit is given back by now
    return std::make_shared<Batch>(std::move(frames));
  };
  bodies.commit = [this](Batch& batch) { commit(batch); };
  bodies.frame_failed = [](Frame& frame, const std::string& stage, const std::exception_ptr& thrown) {
    fail_frame(frame, stage, thrown);
  };
  bodies.batch_failed = [](Batch& batch, const std::string& stage, const std::exception_ptr& thrown) {
    for (const auto& frame : batch.frames) fail_frame(*frame, stage, thrown);
    batch.columns.allow(nullptr);
  };
  return bodies;
}

// Loading and warming up are no part of the run's window: nothing is admitted before all lanes are ready.
std::shared_ptr<Frame> Execution::next() {
  if (!ready_) {
    lane_start_.wait();
    window_begun_ = with_gpus(graph_->snapshot());
    ready_ = true;
  }
  capture_.enter();
  return ends_.next();
}

// Pixels are gone when inputs were made of them: then the picture is decoded again, outside of the gate, which has
// given its bytes to others. These are half a batch a lane at most.
void Execution::prepare_again(Frame& frame) {
  const auto links = setup_.config.chain.of(Section::frame);
  frame.columns.allow(nullptr);
  const bool all_there = std::all_of(links.begin(), links.end(), [&](const ChainLink* link) {
    return std::all_of(link->info.writes.begin(), link->info.writes.end(),
                       [&](const FieldBase* field) { return frame.columns.has(*field); });
  });
  if (all_there) return;
  frame.columns.clear();
  std::string stage = "read";
  try {
    ends_.read(frame);
    std::size_t index = 0;
    for (const ChainLink* link : links) {
      if (frame.failed()) break;
      stage = link->info.name;
      run_stage(*link, *frame_stages_[index++], frame);
    }
  } catch (...) {
    fail_frame(frame, stage, std::current_exception());
  }
}

void Execution::plan_lanes() {
  const Chain& chain = setup_.config.chain;
  if (chain.of(Section::lane).empty()) return;
  const int wanted = setup_.numbers.graph.lanes;
  const int used = std::min(wanted, setup_.devices.count());
  int each = (wanted + used - 1) / used;
  for (int i = 0; i < used; ++i) {
    const auto index = static_cast<std::size_t>(i);  // of the device, and of its first lane
    DeviceModels& models = models_[index];
    const auto begun_ns = clock_.now_ns();
    models.memory = plan_memory(
        {chain, setup_.packages, setup_.config.device.memory, setup_.numbers.batch_size,
         setup_.numbers.graph.slab_bytes, each, setup_.devices.sharing(index, used), kind_of_devices(), known_limits_},
        lanes_[index]->device(), *models.cache, *models.limits);
    if (!models.memory) return;
    warm_up_ns_ += clock_.now_ns() - begun_ns;
  }
  for (int i = 0; i < used; ++i) each = std::min(each, models_[static_cast<std::size_t>(i)].memory->lanes);
  lanes_.resize(static_cast<std::size_t>(std::min(wanted, each * used)));
  for (auto& models : models_) {
    if (models.memory) models.memory->lanes = 0;
  }
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
    ++models_[setup_.devices.of_lane(static_cast<int>(lane))].memory->lanes;
}

// Of which limits are known.
std::string Execution::kind_of_devices() const { return setup_.devices.name + ", " + setup_.numbers.precisions.name(); }

std::vector<MemoryPlan> Execution::memory_plans() const {
  std::vector<MemoryPlan> plans;
  for (const auto& models : models_) {
    if (models.memory) plans.push_back(*models.memory);
  }
  return plans;
}

void Execution::remember_limits() const {
  millrace::remember_limits(known_limits_, kind_of_devices(), setup_.packages, models_);
}

DeviceCounts Execution::device_counts() const {
  DeviceCounts all;
  for (const auto& lane : lanes_) {
    const DeviceCounts one = lane->counts();
    all.uploads += one.uploads;
    all.downloads += one.downloads;
    all.waits += one.waits;
    all.overflows += one.overflows;
  }
  return all;
}

void Execution::commit(Batch& batch) {
  std::vector<std::string> lines;
  lines.reserve(batch.frames.size());
  for (const auto& frame : batch.frames) {
    frame->columns.allow(nullptr);
    const std::string* line = frame->columns.find(segment_line);
    // Without `encode` in the recipe, or when it failed, the line is made here.
    lines.push_back(line != nullptr ? *line : finish_segment_line(*frame, setup_.views));
  }
  ends_.commit(batch, std::move(lines));
  capture_.commit(static_cast<std::int64_t>(batch.frames.size()));
}

// Beside the resources of the graph: the GPUs, by what the calls that were made so far take alone.
Snapshot Execution::with_gpus(Snapshot snapshot) const {
  add_gpus(snapshot, models_, setup_.devices.gpus());
  return snapshot;
}

}  // namespace millrace
