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

/// The graph fails the batch for any exception except a RunError. Storage that fails must end the run.
void run_after_lane(const ChainLink& link, const BatchStage& stage, Batch& batch) {
  try {
    run_stage(link, stage, batch);
  } catch (const StorageError& error) {
    throw RunEnded(link.info.name, error);
  }
}

// For segment lines: items have the index of their view, and the plan has applied the patterns.
std::vector<View> names_of(const std::vector<PlannedView>& views) {
  std::vector<View> named;
  for (const PlannedView& view : views) named.push_back({view.name, "", {}});
  return named;
}

PixelSource source_of(const ExecutionSetup& setup) {
  PixelSource source;
  source.limits = decode_limits(setup.views, setup.resolved.graph.slab_bytes);
  source.memory = pixel_memory(setup.devices);
  source.cache = setup.pixel_cache;
  const auto asks = [](const PlannedView& view) { return view.chain->options<Decode>().nvjpeg > 0; };
  if (std::ranges::any_of(setup.views, asks)) source.nvjpeg = open_nvjpeg(setup.devices);
  return source;
}

int objects_in_a_picture(const std::vector<PlannedView>& views) {
  int objects = 0;
  for (const PlannedView& view : views) objects = std::max(objects, view.chain->objects());
  return objects;
}

/// Throws the error inside a RunEnded, because exit codes follow from its type.
[[noreturn]] void rethrow(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const RunEnded& ended) {
    std::rethrow_exception(ended.cause());
  }
}

}  // namespace

std::vector<DecodeLimits> decode_limits(const std::vector<PlannedView>& views, std::int64_t slab_bytes) {
  std::vector<DecodeLimits> limits;
  for (const PlannedView& view : views) limits.push_back(Decode::limits(view.chain->options<Decode>(), slab_bytes));
  return limits;
}

CounterInfos counters_of_run() {
  CounterInfos all = counters_of();
  all.push_back(&redone_batches);
  return all;
}

void LaneStart::expect(int lanes) {
  const std::lock_guard lock(mutex_);
  missing_ = lanes;
}

void LaneStart::arrive(std::int64_t begun_ns, std::int64_t ended_ns) {
  const std::lock_guard lock(mutex_);
  begun_ns_ = std::min(begun_ns_, begun_ns);
  ended_ns_ = std::max(ended_ns_, ended_ns);
  --missing_;
  changed_.notify_all();
}

std::int64_t LaneStart::time_ns() const {
  const std::lock_guard lock(mutex_);
  return std::max<std::int64_t>(0, ended_ns_ - begun_ns_);
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
      view_names_(names_of(setup_.views)),
      begun_ns_(clock_.now_ns()),
      source_(source_of(setup_)),
      known_limits_(setup_.known_limits_file),
      counters_(counters_of_run()),
      planned_models_(planned_models(setup_.views, setup_.packages)),
      models_(make_device_models(setup_.devices, setup_.resolved, setup_.config.models, factory, setup_.recorder)),
      stage_models_{setup_.resolved.batch_size,
                    setup_.packages,
                    nullptr,
                    nullptr,
                    [precisions = setup_.resolved.precisions](const Package& package) {
                      return image_type(precisions.of(*package.task));
                    },
                    picture_inputs(setup_.views)},
      context_{stage_models_,
               nullptr,
               counters_,
               view_names_,
               source_,
               setup_.output_folder,
               setup_.config.measure.enabled ? &call_costs_ : nullptr},
      capture_(parse_capture(setup_.config.trace.capture), profiler_of(setup_.devices)) {
  frame_stages_ = make_stages<const FrameStage>(setup_.views, Section::frame, [this](const ChainLink& link) {
    return std::shared_ptr<const FrameStage>(link.entry->make_frame_stage(link.options, context_, link.info));
  });
  batch_stages_ = make_stages<const BatchStage>(setup_.views, Section::batch, [this](const ChainLink& link) {
    return std::shared_ptr<const BatchStage>(link.entry->make_batch_stage(link.options, context_, link.info));
  });
  // The wanted number of lanes. plan_lanes() removes those for which a GPU has no memory.
  for (int lane = 0; lane < setup_.resolved.graph.lanes; ++lane) {
    const std::size_t device = setup_.devices.of_lane(lane);
    lanes_.push_back(std::make_unique<Lane>(setup_.views, context_, models_[device],
                                            make_device(setup_.devices, device, "lane " + std::to_string(lane)),
                                            [this](Frame& frame) { prepare_again(frame); }));
  }
  streams_ns_ = clock_.now_ns() - begun_ns_;
}

Execution::~Execution() = default;

void Execution::prepare(ExecutionEnds ends) {
  ends_ = std::move(ends);
  source_.root = ends_.input_root;
  if (!ends_.idle) plan_lanes();
  GraphOptions options = setup_.resolved.graph;
  options.lanes = static_cast<int>(lanes_.size());
  options.groups = static_cast<int>(setup_.views.size());
  auto graph = std::make_unique<FrameGraph>(options, bodies(), clock_, setup_.recorder);
  const std::lock_guard lock(graph_mutex_);
  graph_ = std::move(graph);
}

void Execution::request_stop() {
  lane_start_.stop();
  const std::lock_guard lock(graph_mutex_);
  if (graph_ != nullptr) graph_->request_stop();  // if the graph does not exist yet, run() checks lane_start_
}

Snapshot Execution::snapshot() const { return graph_->snapshot(); }
LaneTimeline::Kept Execution::timeline() const { return graph_->timeline(); }

Result Execution::run() {
  if (lane_start_.stopped()) graph_->request_stop();  // the stop came before the graph existed
  Result result = graph_->run();
  capture_.end();  // the run may end inside the span
  // The run ended before the source asked for its first frame.
  if (!ready_) window_begun_ = with_gpus(result.begun);
  finished_ = with_gpus(result.finished);
  if (result.error) rethrow(result.error);
  return result;
}

GraphBodies<Frame, Batch> Execution::bodies() {
  const Chain& chain = setup_.config.chain;
  // Views differ in options and stage objects, not in stages. So the recipe's chain gives the names for all of them.
  GraphBodies<Frame, Batch> bodies;
  bodies.next = [this] { return next(); };
  // The source may wait for the lanes or for the scan. A stop must wake it from both.
  bodies.stop_next = [this] {
    lane_start_.stop();
    if (ends_.stop_next) ends_.stop_next();
  };
  bodies.group = [](const Frame& frame) { return frame.item.view; };
  bodies.file_bytes = ends_.file_bytes;
  bodies.read = [this](Frame& frame) {
    ends_.read(frame);
    add_stage_bytes(frame);
  };
  bodies.file = [](const Frame& frame) -> std::string_view { return frame.item.path; };
  bodies.bytes = [](const Frame& frame) {
    return ByteNeed(frame.info.pixel_bytes + frame.stage_bytes, frame.info.working_bytes);
  };
  std::size_t index = 0;
  for (const ChainLink* named : chain.of(Section::frame)) {
    bodies.frame_stages.push_back({named->info.name, [this, index](Frame& frame) {
                                     const auto& [link, stage] = frame_stage(frame, index);
                                     run_stage(*link, *stage, frame);
                                   }});
    ++index;
  }
  index = 0;
  for (const ChainLink* named : chain.of(Section::lane)) {
    bodies.lane_stages.push_back({named->info.name, [this, index](Batch& batch, int lane) {
                                    lanes_[static_cast<std::size_t>(lane)]->run(index, batch);
                                  }});
    ++index;
  }
  index = 0;
  for (const ChainLink* named : chain.of(Section::batch)) {
    bodies.batch_stages.push_back({named->info.name, [this, index](Batch& batch) {
                                     const auto& [link, stage] =
                                         batch_stages_[static_cast<std::size_t>(batch.view())][index];
                                     run_after_lane(*link, *stage, batch);
                                   }});
    ++index;
  }
  // Without lane stages the graph starts no lane, so no lane would arrive.
  lane_start_.expect(bodies.lane_stages.empty() ? 0 : static_cast<int>(lanes_.size()));
  // If warm_up() throws, the graph ends the run and calls stop_next, which wakes the source.
  bodies.lane_start = [this](int lane) {
    const auto begun_ns = clock_.now_ns();
    if (!ends_.idle) lanes_[static_cast<std::size_t>(lane)]->warm_up();
    lane_start_.arrive(begun_ns, clock_.now_ns());
  };
  bodies.make_batch = [](std::vector<std::shared_ptr<Frame>> frames) {
    // A file that no stage decoded is still in memory, but the gate has its bytes back already.
    for (const auto& frame : frames) frame->file = {};
    return std::make_shared<Batch>(std::move(frames));
  };
  bodies.commit = [this](Batch& batch) { commit(batch); };
  bodies.frame_failed = [](Frame& frame, const std::string& stage, const std::exception_ptr& thrown) {
    fail_frame(frame, stage, thrown);
  };
  bodies.batch_failed = [](Batch& batch, const std::string& stage, const std::exception_ptr& thrown) {
    for (const auto& frame : batch.frames) fail_frame(*frame, stage, thrown);
    batch.columns.allow(nullptr);  // the failed stage has left its restriction
  };
  return bodies;
}

// The gate can only grant as many bytes to a picture as one slab has, or a batch could wait for itself.
void Execution::add_stage_bytes(Frame& frame) const {
  if (lanes_.empty()) return;
  const std::int64_t more = lanes_.front()->bytes(frame), slab = setup_.resolved.graph.slab_bytes;
  if (more == 0) return;
  if (frame.info.pixel_bytes + more > slab)
    throw PictureError(Reason::too_large, "its pixels and the sums of its windows need " +
                                              std::to_string(frame.info.pixel_bytes + more) +
                                              " bytes, but gate.slab is " + std::to_string(slab) +
                                              "; raise gate.slab, or lower tiles.roi");
  frame.stage_bytes = more;
}

// No frame is admitted before all lanes are warm, so loading and warm-up are not part of the run's window.
std::shared_ptr<Frame> Execution::next() {
  if (!ready_) {
    lane_start_.wait();
    window_begun_ = with_gpus(graph_->snapshot());
    ready_ = true;
  }
  capture_.enter();
  return ends_.next();
}

// If the chain has freed the pixels after their last reader, the picture is read and decoded again.
// This happens outside the gate, which has given the frame's bytes to others: at most half a batch for each lane.
void Execution::prepare_again(Frame& frame) {
  const auto& stages = frame_stages_[static_cast<std::size_t>(frame.item.view)];
  frame.columns.allow(nullptr);
  const bool all_there = std::all_of(stages.begin(), stages.end(), [&](const auto& placed) {
    const Fields& writes = placed.link->info.writes;
    return std::all_of(writes.begin(), writes.end(), [&](const FieldBase* field) { return frame.columns.has(*field); });
  });
  if (all_there) return;
  // A field is written once, so stages can only run again on empty columns.
  frame.columns.clear();
  std::string stage = "read";
  try {
    ends_.read(frame);
    for (const auto& [link, object] : stages) {
      if (frame.failed()) break;
      stage = link->info.name;
      run_stage(*link, *object, frame);
    }
  } catch (...) {
    fail_frame(frame, stage, std::current_exception());
  }
}

void Execution::plan_lanes() {
  const Chain& chain = setup_.config.chain;
  if (chain.of(Section::lane).empty()) return;
  const int wanted = setup_.resolved.graph.lanes;
  const int used = std::min(wanted, setup_.devices.count());  // devices with a lane
  // Lanes on each device, rounded up.
  int each = (wanted + used - 1) / used;
  for (int i = 0; i < used; ++i) {
    const auto index = static_cast<std::size_t>(i);  // of the device, and of its first lane
    DeviceModels& models = models_[index];
    const auto begun_ns = clock_.now_ns();
    models.memory =
        plan_memory({planned_models_, objects_in_a_picture(setup_.views), setup_.packages, setup_.config.device.memory,
                     setup_.resolved.batch_size, setup_.resolved.graph.slab_bytes, each,
                     setup_.devices.sharing(index, used), kind_of_devices(), known_limits_, models.graphs.get()},
                    lanes_[index]->device(), *models.cache, *models.limits);
    // The device uses the memory of the host. So do all others, because the devices of a run are of one kind.
    if (!models.memory) return;
    planning_ns_ += clock_.now_ns() - begun_ns;
  }
  // All devices get the same number of lanes, so the device with room for the fewest lanes decides.
  for (int i = 0; i < used; ++i) each = std::min(each, models_[static_cast<std::size_t>(i)].memory->lanes);
  // Lanes are on the devices in turn, so the first lanes are spread over all of them.
  lanes_.resize(static_cast<std::size_t>(std::min(wanted, each * used)));
  // The plans get the number of lanes that their devices really have: the last turn may be incomplete.
  for (auto& models : models_) {
    if (models.memory) models.memory->lanes = 0;
  }
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
    ++models_[setup_.devices.of_lane(static_cast<int>(lane))].memory->lanes;
}

// The key of KnownLimits for the devices of this run. A call needs other memory in another precision, and as a graph.
std::string Execution::kind_of_devices() const {
  return setup_.devices.name + ", " + setup_.resolved.precisions.name(setup_.packages) +
         (setup_.config.models.graphs ? ", graphs" : "");
}

StartTimes Execution::start_times() const {
  StartTimes times;
  if (!ready_) return times;
  times.streams_ns = streams_ns_;
  times.planning_ns = planning_ns_;
  for (const auto& lane : lanes_) {
    if (lane->warm_up_times().total_ns() > times.slowest.total_ns()) times.slowest = lane->warm_up_times();
  }
  return times;
}

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
    all = all + lane->counts();
  }
  return all;
}

std::map<std::string, CountsByCall> Execution::device_counts_by_stage() const {
  std::map<std::string, CountsByCall> all;
  for (const auto& lane : lanes_) {
    for (const auto& [stage, calls] : lane->counts_by_stage()) {
      for (const auto& [call, counts] : calls) all[stage][call] = all[stage][call] + counts;
    }
  }
  return all;
}

void Execution::commit(Batch& batch) {
  std::vector<std::string> lines;
  lines.reserve(batch.frames.size());
  for (const auto& frame : batch.frames) {
    frame->columns.allow(nullptr);
    const std::string* line = frame->columns.find(segment_line);
    // The line is made here if the recipe has no `encode`, or if `encode` failed for the whole batch.
    lines.push_back(line != nullptr ? *line : finish_segment_line(*frame, view_names_));
  }
  ends_.commit(batch, std::move(lines));
  for (const auto& frame : batch.frames) {
    if (frame->when_committed) frame->when_committed();
  }
  capture_.commit(static_cast<std::int64_t>(batch.frames.size()));
}

// Adds the GPUs to the resources of the graph.
Snapshot Execution::with_gpus(Snapshot snapshot) const {
  if (!snapshot.measured) return snapshot;
  std::vector<GpuPart> parts;
  for (const PlannedModel& model : planned_models_) {
    for (const Method& method : model.package->methods) {
      const auto known = std::ranges::find(parts, method.part, &GpuPart::name);
      if (known == parts.end()) {
        parts.push_back({method.part, model.stage});
      } else if (known->stage != model.stage) {
        known->stage.clear();
      }
    }
  }
  add_gpus(snapshot, models_, setup_.devices.gpus(), parts);
  return snapshot;
}

}  // namespace millrace
