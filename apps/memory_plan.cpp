#include "apps/memory_plan.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <new>

#include "apps/run_options.hpp"
#include "stages/detect.hpp"
#include "stages/segment.hpp"

namespace millrace {
namespace {

struct Bytes {
  std::int64_t memory = 0;
  void visit(OptionVisitor& v) { v.bytes("memory", memory, "", {1, 9e18}); }
};

std::string gigabytes(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, bytes < 1'000'000'000 ? "%.3f GB" : "%.1f GB", static_cast<double>(bytes) / 1e9);
  return text;
}

std::int64_t bytes_of(const TensorSpec& spec) { return Tensor{nullptr, nullptr, spec.shape, spec.dtype}.bytes(); }

/// Rasters in full slabs, the largest detector's input and the segmenter's, and logits of all boxes there can be.
std::int64_t bytes_of_pictures(const Settings& settings, int batch_size, std::int64_t slab_bytes,
                               const Packages& packages, ModelCache& models) {
  const auto boxes = std::int64_t{batch_size} *
                     parse_options<Detect::Options>(Detect::name, settings.values(Detect::name)).max_detections;
  std::int64_t detector = 0, segmenter = 0;
  for (const auto& [folder, package] : packages) {
    const DType images = models.acquire(*package)->image_type();
    if (package->task == Task::detect) {
      detector = std::max(detector, bytes_of(inputs_of(*package, "forward", batch_size, 0, images).front()));
    } else {
      segmenter = bytes_of(inputs_of(*package, "encode", batch_size, 0, images).front()) +
                  bytes_of(outputs_of(*package, "encode", batch_size, 0, images).front()) +
                  bytes_of(outputs_of(*package, "decode", batch_size, boxes, images).front());
    }
  }
  return batch_size * slab_bytes + detector + segmenter;
}

/// Halves what calls may have; says whether anything became smaller.
bool halve(const Packages& packages, const Settings& settings, int batch_size, CallLimits& limits) {
  const auto before = limits.all();
  for (const auto& [folder, package] : packages) {
    const CallShape shape = call_shape(*package, settings, batch_size, limits);
    for (const auto& method : methods_of(*package)) {
      const int rows = method == "decode" ? shape.boxes : shape.pictures;
      if (rows > 1) limits.ran_out(package->name, method, rows);
    }
  }
  return limits.all() != before;
}

void call_all(Device& device, const Settings& settings, int batch_size, const Packages& packages, ModelCache& models,
              const CallLimits& limits) {
  for (const auto& [folder, package] : packages) {
    const CallShape shape = call_shape(*package, settings, batch_size, limits);
    try {
      warm_up(*models.acquire(*package), *package, shape.pictures, shape.boxes, device);
    } catch (const OutOfMemoryError& error) {
      throw OutOfMemoryError(folder + ": " + error.what());
    } catch (const ModelError& error) {
      throw ModelError(folder + ": " + error.what());
    }
  }
}

}  // namespace

CallShape call_shape(const Package& package, const Settings& settings, int batch_size, const CallLimits& limits) {
  if (package.task == Task::detect)
    return {std::min({batch_size, package.max_batch, limits.most(package.name, "forward")}), 0};
  const auto segment = parse_options<Segment::Options>(Segment::name, settings.values(Segment::name));
  return {std::min({segment.image_batch, package.max_batch, limits.most(package.name, "encode")}),
          segment.pad ? std::min({segment.box_batch, package.max_boxes, limits.most(package.name, "decode")}) : 1};
}

std::string MemoryPlan::text() const {
  std::string text = device + ": " + gigabytes(free_bytes) + " free, planned with " + gigabytes(limit_bytes) +
                     ": models " + gigabytes(models_bytes) + ", " + std::to_string(lanes) +
                     (lanes == 1 ? " lane of " : " lanes of ") + gigabytes(lane_bytes()) + " (calls " +
                     gigabytes(calls_bytes) + ", pictures up to " + gigabytes(pictures_bytes) + ")";
  if (lanes < wanted_lanes) text += "; there is no room for " + std::to_string(wanted_lanes) + " lanes";
  if (bytes() > limit_bytes) text += "; a lane may need more than there is: lower batch.size or gate.slab";
  for (const auto& [key, rows] : smaller_calls) {
    text += "; " + key.first + ": " + key.second + " takes " + std::to_string(rows) +
            (key.second == "decode" ? rows == 1 ? " box" : " boxes"
             : rows == 1            ? " picture"
                                    : " pictures") +
            " a call";
  }
  return text;
}

std::int64_t memory_limit(const std::string& option, const DeviceMemory& memory) {
  double share = 0;
  const auto [end, error] = std::from_chars(option.data(), option.data() + option.size(), share);
  if (error == std::errc() && end == option.data() + option.size() && share > 0 && share <= 1)
    return static_cast<std::int64_t>(share * static_cast<double>(memory.free_bytes));
  try {
    return std::min(memory.free_bytes, parse_options<Bytes>("device", {{"memory", {option}}}).memory);
  } catch (const UsageError&) {
    throw UsageError("device.memory is '" + option + "'; it must be a share such as 0.9, or bytes such as 8G");
  }
}

std::optional<MemoryPlan> plan_memory(Device& device, const Settings& settings, int batch_size, std::int64_t slab_bytes,
                                      int wanted, const Packages& packages, ModelCache& models, const std::string& kind,
                                      const KnownLimits& known, CallLimits& limits) {
  Stream* const stream = device.stream();
  const auto before = stream == nullptr ? std::nullopt : stream->memory();
  if (!before) return std::nullopt;
  MemoryPlan plan;
  plan.device = "GPU " + std::to_string(stream->device());
  plan.total_bytes = before->total_bytes;
  plan.free_bytes = before->free_bytes;
  plan.limit_bytes = memory_limit(settings.parse<DeviceOptions>().memory, *before);
  plan.wanted_lanes = wanted;
  known.recall(kind, plan.limit_bytes, packages, limits);
  plan.pictures_bytes = bytes_of_pictures(settings, batch_size, slab_bytes, packages, models);
  const auto loaded = stream->memory()->free_bytes;
  plan.models_bytes = before->free_bytes - loaded;
  const auto give_back = [&] {
    device.wait();
    stream->trim();
    for (const auto& [folder, package] : packages) models.acquire(*package)->trim();
  };
  while (true) {
    const auto limits_before = limits.all();
    try {
      call_all(device, settings, batch_size, packages, models, limits);
    } catch (const OutOfMemoryError&) {
      if (limits.all() == limits_before) throw;
      give_back();
      continue;
    } catch (const std::bad_alloc&) {
      if (limits.all() == limits_before && !halve(packages, settings, batch_size, limits)) {
        throw OutOfMemoryError(plan.device + ": memory ran out before one picture fit, with " +
                               gigabytes(plan.free_bytes) + " free at the start; take smaller models, or another GPU");
      }
      give_back();
      continue;
    }
    plan.calls_bytes = loaded - stream->memory()->free_bytes;
    if (plan.models_bytes + plan.lane_bytes() <= plan.limit_bytes) break;
    // Where one of each is too much as well, there is nothing left to plan: calls that fail are made again in halves.
    if (!halve(packages, settings, batch_size, limits)) break;
    give_back();
  }
  plan.smaller_calls = limits.all();
  const auto room = plan.limit_bytes - plan.models_bytes;
  plan.lanes =
      static_cast<int>(std::clamp<std::int64_t>(room / std::max<std::int64_t>(1, plan.lane_bytes()), 1, wanted));
  return plan;
}

}  // namespace millrace
