#include "pipeline/recording.hpp"

#include <algorithm>
#include <cmath>

#include "pipeline/gpu_limit.hpp"
#include "pipeline/graph_options.hpp"

namespace millrace {
namespace {

constexpr double few_cores = 0.02;  // cores of other programs that are not worth a thread in the model
constexpr double part_for_pixels = 1 - 1.0 / budget_parts;  // of gate.memory; the rest is for files

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

Cost cost_of(const ServiceSample& it) {
  const double worked_s = seconds(it.took_ns - it.no_core_ns);
  // Without core times, the thread may have used a core for all of its time.
  const double core_s = it.measured ? seconds(it.core_ns) : worked_s;
  // A body whose threads computed for longer than it took had several of them at a time.
  if (core_s > worked_s && worked_s > 0) return {core_s, core_s / worked_s, 0, 0};
  return {core_s, 1, 0, worked_s - core_s};
}

StageCosts costs_of(const Reading& reading) {
  StageCosts costs{reading.name};
  for (const auto& sample : reading.samples) costs.recorded.push_back(cost_of(sample));
  return costs;
}

// Threads of other programs take a part of the cores; returns how many are needed for this part.
double rivals(PipelineModel model, double cores_of_others) {
  if (cores_of_others < few_cores * model.cores) return 0;
  const auto taken = [&](double others) {
    model.others = others;
    const Outcome outcome = simulate(model);
    return other_cores(outcome.finished - outcome.begun).value_or(0);
  };
  double low = 0, high = 8 * model.cores;
  for (int i = 0; i < 12; ++i) {
    const double middle = (low + high) / 2;
    (taken(middle) < cores_of_others ? low : high) = middle;
  }
  return (low + high) / 2;
}

// The waits of lanes are for their GPU as far as its calls needed it.
void use_gpu(std::vector<StageCosts>& lane_stages, const ResourceReading& gpu,
             const std::vector<ResourceReading>& resources, const Reading& lane) {
  double waits_s = 0, batches = 0;
  for (const auto& stage : lane_stages) {
    double sum_s = 0;
    for (const Cost& cost : stage.recorded) sum_s += cost.wait_s;
    if (!stage.recorded.empty()) waits_s += sum_s / static_cast<double>(stage.recorded.size());
  }
  batches = static_cast<double>(lane.items);
  if (waits_s <= 0 || batches <= 0) return;
  const double share = std::min(seconds(gpu.total.busy_ns) / batches / waits_s, 1.0);
  // A later stage waits for the kernels of a stage, so a wait does not tell whose they are.
  std::vector<std::string> names;
  for (const auto& stage : lane_stages) names.push_back(stage.name);
  const std::vector<StageKernels> kernels = kernels_of(gpu, names);
  std::vector<double> copies_s(names.size());
  for (const ResourceReading& resource : resources) {
    const auto copies = resource.copies ? kernels_of(resource, names) : std::vector<StageKernels>();
    for (std::size_t i = 0; i < copies.size(); ++i) copies_s[i] += copies[i].gpu_s;
  }
  for (std::size_t i = 0; i < lane_stages.size(); ++i) {
    double core_s = 0;  // of one item
    for (const Cost& cost : lane_stages[i].recorded)
      core_s += cost.core_s / static_cast<double>(lane_stages[i].recorded.size());
    for (Cost& cost : lane_stages[i].recorded) {
      // With several lanes on a GPU, the rest is the wait for copies, and for other lanes, which the replay makes anew.
      const double rest_s = lane.servers > gpu.total.servers ? copies_s[i] / batches : (1 - share) * cost.wait_s;
      if (kernels.empty()) {
        cost.device_s = share * cost.wait_s;
      } else {
        // Kernels run while the stage launches more of them. A batch with more boxes takes longer in both.
        const double items = core_s > 0 ? cost.core_s / core_s / batches : 1 / batches;
        cost.device_s = kernels[i].gpu_s * items;
        cost.launch_s = std::min(kernels[i].launch_s * items, cost.core_s);
        cost.core_s -= cost.launch_s;
      }
      cost.wait_s = rest_s;
    }
  }
}

}  // namespace

std::vector<StageCosts*> stages_of(PipelineModel& model) {
  std::vector<StageCosts*> all{&model.input, &model.read};
  for (auto* group : {&model.frame_stages, &model.lane_stages, &model.batch_stages}) {
    for (auto& stage : *group) all.push_back(&stage);
  }
  all.push_back(&model.commit);
  return all;
}

int frames_in_memory(double memory_bytes, double pixel_bytes) {
  return static_cast<int>(std::clamp(memory_bytes * part_for_pixels / pixel_bytes, 1.0, 1e6));
}

std::int64_t memory_for_frames(int frames, double pixel_bytes) {
  constexpr double unit = 1 << 20, most = 9e18;
  const double units = std::ceil(frames * pixel_bytes / part_for_pixels / unit);
  return static_cast<std::int64_t>(std::min(units * unit, most));
}

std::optional<Recording> recording_of(const Snapshot& window, const RunShape& shape) {
  if (window.committed <= 0 || window.time_ns <= 0) return std::nullopt;
  Recording recording;
  recording.team = shape.team;
  recording.row_limits = shape.row_limits;
  recording.frames_per_s = static_cast<double>(window.committed) / seconds(window.time_ns);
  recording.latency_s = window.latency.quantile_ns(latency_quantile) / 1e9;
  recording.disk_stall = seconds(window.machine.io_stall_ns.value_or(0)) / seconds(window.time_ns);
  PipelineModel& model = recording.model;
  model.batch = shape.batch;
  model.frames =
      static_cast<int>(std::min<std::int64_t>(window.committed, std::int64_t{replayed_batches} * shape.batch));
  model.admission = static_cast<int>(window.admission_items);
  // Each nice level changes the weight of a thread by a factor of 1.25 (man 7 sched).
  model.worker_weight = std::pow(1.25, -shape.worker_nice);
  model.cores = window.cores;
  model.input = costs_of(window.input);
  const ResourceReading* gpu = nullptr;
  const Reading* lane = nullptr;
  for (const ResourceReading& resource : window.resources) {
    const std::string& name = resource.total.name;
    if (resource.copies) continue;  // in the model, lanes wait for them, and no other lane does
    if (resource.waited_for_by_lanes) {
      gpu = &resource;
      model.gpus = resource.total.servers;
    } else if (name == "read") {
      model.read_threads = resource.total.servers;
      model.read = costs_of(resource.total);
    } else if (name == "commit") {
      model.commit = costs_of(resource.total);
    } else if (resource.in_turn) {
      lane = &resource.total;
      model.lanes = resource.total.servers;
      for (const Reading& part : resource.parts) model.lane_stages.push_back(costs_of(part));
    } else {
      model.workers = resource.total.servers;
      for (const Reading& part : resource.parts)
        (part.unit == Unit::frames ? model.frame_stages : model.batch_stages).push_back(costs_of(part));
    }
  }
  if (gpu != nullptr && lane != nullptr) use_gpu(model.lane_stages, *gpu, window.resources, *lane);
  for (const StageCosts* stage : stages_of(model)) {
    if (stage->recorded.empty()) return std::nullopt;
  }
  if (shape.memory_bytes > 0 && shape.decoded_bytes > 0) {
    recording.memory_bytes = static_cast<double>(shape.memory_bytes);
    recording.pixel_bytes = static_cast<double>(shape.decoded_bytes) / static_cast<double>(window.committed);
    model.pixels_until = shape.pixels_until;
    // The run worked, so two batches fit.
    model.frames_in_memory = std::max(frames_in_memory(recording.memory_bytes, recording.pixel_bytes), 2 * model.batch);
  }
  model.others = rivals(model, other_cores(window).value_or(0));
  return recording;
}

}  // namespace millrace
