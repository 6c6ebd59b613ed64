#include "run/execution.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "io/files/files.hpp"
#include "io/files/source_names.hpp"
#include "run/run_ended.hpp"
#include "run/run_options.hpp"
#include "stages/encode.hpp"
#include "stages/registry.hpp"

namespace millrace {
namespace {

void run_after_lane(const ChainLink& link, BatchStage& stage, Batch& batch) {
  try {
    run_stage(link, stage, batch);
  } catch (const StorageError& error) {
    throw RunEnded(link.info.name, error);
  }
}

constexpr int timed_calls = 5;  // of each model and method, alone

std::vector<std::shared_ptr<Demand>> make_demands(const Devices& devices) {
  std::vector<std::shared_ptr<Demand>> demands;
  if (!devices.leave_host_free()) return demands;
  for (std::size_t i = 0; i < devices.ordinals.size(); ++i) demands.push_back(std::make_shared<Demand>());
  return demands;
}

std::vector<std::shared_ptr<CallLimits>> make_limits(const Devices& devices) {
  std::vector<std::shared_ptr<CallLimits>> limits;
  for (std::size_t i = 0; i < devices.ordinals.size(); ++i) limits.push_back(std::make_shared<CallLimits>());
  return limits;
}

std::vector<std::unique_ptr<ModelCache>> make_caches(const ExecutionSetup& setup, const EngineFactory& factory,
                                                     const std::vector<std::shared_ptr<Demand>>& demands,
                                                     const std::vector<std::shared_ptr<CallLimits>>& limits) {
  std::vector<std::unique_ptr<ModelCache>> caches;
  for (std::size_t i = 0; i < setup.devices.ordinals.size(); ++i) {
    EngineFactory engines = [engines = engines_on(setup.devices, i, setup.numbers.precisions, factory),
                             demand = demands.empty() ? nullptr : demands[i],
                             limit = limits[i]](const Package& package, const EngineOptions& options) {
      auto engine = limited(engines(package, options), package.name, limit);
      return demand == nullptr ? engine : counted(std::move(engine), package.name, demand);
    };
    caches.push_back(std::make_unique<ModelCache>(setup.settings.parse<ModelOptions>().budget, std::move(engines),
                                                  EngineOptions{setup.numbers.team, -1, true}));
  }
  return caches;
}

bool from_memory(const Settings& settings) { return settings.parse<InputOptions>().source == "memory"; }

bool was_there_when_planned(const Item& item) { return item.mtime_ns != 0; }

[[noreturn]] void rethrow(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const RunEnded& ended) {
    std::rethrow_exception(ended.cause());
  }
}

}  // namespace

Execution::Execution(ExecutionSetup setup, ExecutionEnds ends, const EngineFactory& factory, const Clock& clock)
    : setup_(std::move(setup)),
      ends_(std::move(ends)),
      clock_(clock),
      decode_limits_(Decode::limits(parse_options<Decode::Options>(Decode::name, setup_.settings.values(Decode::name)),
                                    setup_.numbers.graph.slab_bytes)),
      max_file_bytes_(setup_.settings.parse<ReadOptions>().max_file),
      segmenter_(setup_.chain.find("segment") != nullptr ? setup_.settings.parse<ModelOptions>().segmenter : ""),
      demands_(make_demands(setup_.devices)),
      alone_(setup_.devices.ordinals.size()),
      measured_(setup_.devices.ordinals.size()),
      limits_(make_limits(setup_.devices)),
      models_(make_caches(setup_, factory, demands_, limits_)),
      context_{setup_.views,
               segmenter_,
               setup_.output_folder,
               setup_.input_root,
               decode_limits_,
               setup_.numbers.batch_size,
               setup_.packages,
               *models_.front(),
               counters_,
               nullptr,
               image_type(setup_.numbers.precisions.detector),
               image_type(setup_.numbers.precisions.segmenter),
               pixel_memory(setup_.devices),
               from_memory(setup_.settings) ? &pixel_cache_ : nullptr},
      capture_(parse_capture(setup_.settings.parse<TraceOptions>().capture), profiler_of(setup_.devices)) {
  for (const ChainLink* link : setup_.chain.of(Section::frame)) {
    frame_stages_.push_back(link->entry->make_frame_stage(link->values, context_));
  }
  for (const ChainLink* link : setup_.chain.of(Section::batch)) {
    batch_stages_.push_back(link->entry->make_batch_stage(link->values, context_));
  }
  lane_stages_.resize(static_cast<std::size_t>(setup_.numbers.graph.lanes));
  warm_.resize(lane_stages_.size());
  for (std::size_t lane = 0; lane < lane_stages_.size(); ++lane) {
    auto& stages = lane_stages_[lane];
    const std::size_t device = setup_.devices.of_lane(static_cast<int>(lane));
    devices_.push_back(make_device(setup_.devices, device, "lane " + std::to_string(lane)));
    lane_contexts_.push_back({context_.views, context_.segmenter, context_.output_folder, context_.input_root,
                              context_.decode_limits, context_.batch_size, context_.packages, *models_[device],
                              context_.counters, devices_.back().get(), context_.detector_images,
                              context_.segmenter_images});
    lane_contexts_.back().limits = limits_[device].get();
    for (const ChainLink* link : setup_.chain.of(Section::lane)) {
      stages.push_back(link->entry->make_batch_stage(link->values, lane_contexts_.back()));
    }
  }
}

Execution::~Execution() = default;

GraphBodies<Frame, Batch> Execution::bodies() {
  GraphBodies<Frame, Batch> bodies;
  bodies.next = [this] {
    if (!std::exchange(begun_, true)) {
      wait_for_lanes();
      window_begun_ = with_gpu(graph_->snapshot());
      ready_ = true;
    }
    capture_.enter();
    return ends_.next();
  };
  bodies.stop_next = [this] {
    {
      const std::lock_guard lock(lanes_mutex_);
      stopping_ = true;
    }
    lanes_changed_.notify_all();
    if (ends_.stop_next) ends_.stop_next();
  };
  bodies.file_bytes = [this](const Frame& frame) { return file_bytes(frame); };
  bodies.read = [this](Frame& frame) { read(frame); };
  bodies.bytes = [](const Frame& frame) { return ByteNeed(frame.info.pixel_bytes, frame.info.working_bytes); };
  std::size_t index = 0;
  for (const ChainLink* link : setup_.chain.of(Section::frame)) {
    const FrameStage& stage = *frame_stages_[index++];
    bodies.frame_stages.push_back({link->info.name, [link, &stage](Frame& frame) { run_stage(*link, stage, frame); }});
  }
  index = 0;
  for (const ChainLink* link : setup_.chain.of(Section::lane)) {
    bodies.lane_stages.push_back({link->info.name, [this, index](Batch& batch, int lane) {
                                    run_in_lane(index, batch, static_cast<std::size_t>(lane));
                                  }});
    ++index;
  }
  index = 0;
  for (const ChainLink* link : setup_.chain.of(Section::batch)) {
    BatchStage& stage = *batch_stages_[index++];
    bodies.batch_stages.push_back(
        {link->info.name, [link, &stage](Batch& batch) { run_after_lane(*link, stage, batch); }});
  }
  if (!bodies.lane_stages.empty()) lanes_to_start_ = static_cast<int>(lane_stages_.size());
  bodies.lane_start = [this](int lane) {
    warm_up_packages(static_cast<std::size_t>(lane));
    const std::lock_guard lock(lanes_mutex_);
    --lanes_to_start_;
    lanes_changed_.notify_all();
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

void Execution::prepare() {
  plan_lanes();
  GraphOptions options = setup_.numbers.graph;
  options.lanes = static_cast<int>(lane_stages_.size());
  auto graph = std::make_unique<FrameGraph>(options, bodies(), clock_);
  const std::lock_guard lock(lanes_mutex_);
  graph_ = std::move(graph);
}

void Execution::request_stop() {
  {
    const std::lock_guard lock(lanes_mutex_);
    stopping_ = true;
    if (graph_ == nullptr) return;  // run() will see it
  }
  graph_->request_stop();
}

Result Execution::run() {
  if (graph_ == nullptr) prepare();
  bool stop = false;
  {
    const std::lock_guard lock(lanes_mutex_);
    stop = stopping_;
  }
  if (stop) graph_->request_stop();
  Result result = graph_->run();
  capture_.end();
  if (!begun_) window_begun_ = with_gpu(result.begun);
  if (result.error) rethrow(result.error);
  return result;
}

// Beside the resources of the graph: the GPUs, by what the calls that were made so far take alone.
Snapshot Execution::with_gpu(Snapshot snapshot) const {
  if (demands_.empty()) return snapshot;
  ResourceReading gpu;
  gpu.total.name = "GPU";
  gpu.total.unit = Unit::tasks;
  gpu.total.servers = setup_.devices.gpus();
  gpu.waited_for_by_lanes = true;
  for (const auto& [method, name] : {std::pair{"forward", "detector"}, {"encode", "encoder"}, {"decode", "decoder"}}) {
    Reading part;
    part.name = name;
    part.unit = Unit::tasks;
    part.servers = gpu.total.servers;
    for (const auto& demand : demands_) {
      for (const Demand::Part& one : demand->parts()) {
        if (one.method != method) continue;
        part.items += one.calls;
        part.busy_ns += one.busy_ns;
      }
    }
    gpu.total.items += part.items;
    gpu.total.busy_ns += part.busy_ns;
    gpu.parts.push_back(std::move(part));
  }
  snapshot.resources.push_back(std::move(gpu));
  return snapshot;
}

CacheStatistics Execution::models() const {
  CacheStatistics all;
  for (const auto& cache : models_) {
    const CacheStatistics one = cache->statistics();
    all.loads.insert(all.loads.end(), one.loads.begin(), one.loads.end());
    all.hits += one.hits;
    all.evictions += one.evictions;
    all.resident_bytes += one.resident_bytes;
  }
  return all;
}

DeviceCounts Execution::device_counts() const {
  DeviceCounts all;
  for (std::size_t lane = 0; lane < devices_.size(); ++lane) {
    const DeviceCounts now = devices_[lane]->counts();
    all.uploads += now.uploads - warm_[lane].uploads;
    all.downloads += now.downloads - warm_[lane].downloads;
    all.waits += now.waits - warm_[lane].waits;
    all.overflows += now.overflows - warm_[lane].overflows;
  }
  return all;
}

std::int64_t Execution::file_bytes(const Frame& frame) const {
  if (was_there_when_planned(frame.item)) return frame.item.bytes;  // another size fails to be read
  std::error_code unknown;
  const auto bytes = std::filesystem::file_size(open_path(setup_.input_root, frame.item), unknown);
  return unknown ? 0 : static_cast<std::int64_t>(bytes);
}

void Execution::read(Frame& frame) {
  if (context_.pixel_cache != nullptr) {
    if (const auto known = pixel_cache_.find(frame.item.path)) {
      frame.info = known->info;
      return;
    }
  }
  FileExpectations expected;
  expected.max_bytes = max_file_bytes_;
  if (was_there_when_planned(frame.item)) {
    expected.bytes = frame.item.bytes;
    expected.mtime_ns = frame.item.mtime_ns;
  }
  frame.file = read_file(open_path(setup_.input_root, frame.item), expected);
  read_bytes_ += static_cast<std::int64_t>(frame.file.size);
  frame.info = probe(frame.file.span(), decode_limits_);
}

// Loading and warming up are told apart from the run: nothing is admitted before all lanes are ready.
void Execution::wait_for_lanes() {
  std::unique_lock lock(lanes_mutex_);
  lanes_changed_.wait(lock, [&] { return lanes_to_start_ == 0 || stopping_; });
}

void Execution::plan_lanes() {
  if (setup_.chain.of(Section::lane).empty()) return;
  const int wanted = setup_.numbers.graph.lanes;
  const int used = std::min(wanted, setup_.devices.count());
  int each = (wanted + used - 1) / used;
  for (int i = 0; i < used; ++i) {
    const auto index = static_cast<std::size_t>(i);  // of the device, and of its first lane
    const auto begun_ns = clock_.now_ns();
    auto plan =
        plan_memory({setup_.settings, setup_.packages, setup_.numbers.batch_size, setup_.numbers.graph.slab_bytes, each,
                     setup_.devices.sharing(index, used), kind_of_devices(), known_limits_},
                    *devices_[index], *models_[index], *limits_[index]);
    if (!plan) return;
    warm_up_ns_ += clock_.now_ns() - begun_ns;
    memory_plans_.push_back(std::move(*plan));
  }
  for (const auto& plan : memory_plans_) each = std::min(each, plan.lanes);
  const auto lanes = static_cast<std::size_t>(std::min(wanted, each * used));
  for (auto& plan : memory_plans_) plan.lanes = 0;
  for (std::size_t lane = 0; lane < lanes; ++lane)
    ++memory_plans_[setup_.devices.of_lane(static_cast<int>(lane))].lanes;
  lane_stages_.resize(lanes);
  while (lane_contexts_.size() > lanes) lane_contexts_.pop_back();
  devices_.resize(lanes);
  warm_.resize(lanes);
}

// Of which limits are known.
std::string Execution::kind_of_devices() const { return setup_.devices.name + ", " + setup_.numbers.precisions.name(); }

void Execution::remember_limits() const {
  if (memory_plans_.empty()) return;
  std::map<CallLimits::Key, int> least;
  std::int64_t limit_bytes = memory_plans_.front().limit_bytes;
  for (std::size_t i = 0; i < memory_plans_.size(); ++i) {
    for (const auto& learned : {memory_plans_[i].ran_out, limits_[i]->learned()}) {
      for (const auto& [key, most] : learned) {
        const auto [entry, is_new] = least.try_emplace(key, most);
        if (!is_new) entry->second = std::min(entry->second, most);
      }
    }
    limit_bytes = std::min(limit_bytes, memory_plans_[i].limit_bytes);
  }
  known_limits_.remember(kind_of_devices(), limit_bytes, setup_.packages, least);
}

void Execution::warm_up_packages(std::size_t lane) {
  ModelCache& models = lane_contexts_[lane].models;
  const std::size_t device = setup_.devices.of_lane(static_cast<int>(lane));
  const std::lock_guard alone(alone_[setup_.devices.first_of_gpu(device)]);
  const auto begun_ns = clock_.now_ns();
  const auto evictions = models.statistics().evictions;
  const bool measure = !demands_.empty() && !measured_[device];
  for (const auto& [folder, package] : setup_.packages) {
    const auto engine = models.acquire(*package);
    if (Stream* stream = devices_[lane]->stream()) {
      stream->when_short([watched = std::weak_ptr<Engine>(engine)] {
        if (const auto there = watched.lock()) there->trim();
      });
    }
    try {
      const CallShape shape = warm_up_package(*engine, *package, lane);
      if (measure) {
        for (const auto& [pictures, boxes, padded] : exec_shapes(shape))
          measure_alone(*engine, *package, pictures, boxes, timed_calls, *devices_[lane], *demands_[device]);
      }
    } catch (const ModelError& error) {
      throw ModelError(folder + ": " + error.what());
    }
    if (!measure && models.statistics().evictions > evictions)
      break;  // the budget does not hold them all: the rest is loaded when its turn comes
  }
  measured_[device] = true;
  warm_up_ns_ += clock_.now_ns() - begun_ns;
  warm_[lane] = devices_[lane]->counts();
}

// In the shapes of the run, of which the largest is returned; where a GPU's memory runs out, in smaller ones.
CallShape Execution::warm_up_package(Engine& engine, const Package& package, std::size_t lane) {
  const CallLimits& limits = *limits_[setup_.devices.of_lane(static_cast<int>(lane))];
  Device& device = *devices_[lane];
  while (true) {
    CallShape shape = call_shape(package, setup_.settings, setup_.numbers.batch_size, limits);
    if (package.task == Task::segment && !shape.padded && memory_plans_.empty()) shape.boxes = 1;
    try {
      for (const auto& [pictures, boxes, padded] : exec_shapes(shape))
        warm_up(engine, package, pictures, boxes, device);
      return shape;
    } catch (const OutOfMemoryError&) {
      const CallShape next = call_shape(package, setup_.settings, setup_.numbers.batch_size, limits);
      const bool smaller = next.pictures < shape.pictures || next.boxes < shape.boxes;
      if (device.stream() == nullptr || !smaller) throw;
      device.wait();
      engine.trim();
      device.stream()->trim();
    }
  }
}

void Execution::commit(Batch& batch) {
  std::vector<std::string> lines;
  lines.reserve(batch.frames.size());
  for (const auto& frame : batch.frames) {
    frame->columns.allow(nullptr);
    const std::string* line = frame->columns.find(segment_line);
    // Without `encode` in the recipe, or when it failed, the line is made here.
    lines.push_back(line != nullptr ? *line : make_segment_line(*frame, setup_.views));
  }
  ends_.commit(batch, std::move(lines));
  capture_.commit(static_cast<std::int64_t>(batch.frames.size()));
}

}  // namespace millrace
