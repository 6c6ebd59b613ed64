#include "run/lane.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <string>
#include <utility>

#include "gpu/stream.hpp"
#include "io/files/source_names.hpp"
#include "run/run_ended.hpp"

namespace millrace {
namespace {

constexpr int timed_calls = 5;  // of each model and method, alone

StageContext of_lane(StageContext context, DeviceModels& models, Device& device) {
  return {context.views,
          context.segmenter,
          context.output_folder,
          context.input_root,
          context.decode_limits,
          context.batch_size,
          context.packages,
          *models.cache,
          context.counters,
          &device,
          context.detector_images,
          context.segmenter_images,
          {},
          nullptr,
          models.limits.get()};
}

/// Does `work`; false where memory ran out for it.
template <class Work>
bool fits(const Work& work) {
  try {
    work();
    return true;
  } catch (const OutOfMemoryError&) {
  } catch (const std::bad_alloc&) {
  }
  return false;
}

}  // namespace

std::string name_of(const Batch& batch) {
  const std::size_t others = batch.frames.size() - 1;
  return "batch " + std::to_string(batch.place().batch) + " (" + display_name(batch.frames.front()->item.path) +
         (others == 0 ? "" : " and " + std::to_string(others) + " more") + ")";
}

Lane::Lane(const Chain& chain, const StageContext& context, DeviceModels& models, std::unique_ptr<Device> device,
           PrepareAgain prepare_again)
    : links_(chain.of(Section::lane)),
      chain_(chain),
      models_(models),
      device_(std::move(device)),
      context_(of_lane(context, models, *device_)),
      prepare_again_(std::move(prepare_again)) {
  for (const ChainLink* link : links_) stages_.push_back(link->entry->make_lane_stage(link->options, context_));
}

DeviceCounts Lane::counts() const {
  DeviceCounts now = device_->counts();
  now.uploads -= warm_.uploads;
  now.downloads -= warm_.downloads;
  now.waits -= warm_.waits;
  now.overflows -= warm_.overflows;
  return now;
}

std::int64_t Lane::warm_up(const Clock& clock) {
  const std::lock_guard alone(*models_.alone);
  const auto begun_ns = clock.now_ns();
  const auto evictions = models_.cache->statistics().evictions;
  const bool measure = models_.demand != nullptr && !models_.measured;
  for (const auto& [folder, package] : context_.packages) {
    const auto engine = models_.cache->acquire(*package);
    if (Stream* stream = device_->stream()) {
      stream->when_short([watched = std::weak_ptr<Engine>(engine)] {
        if (const auto there = watched.lock()) there->trim();
      });
    }
    try {
      const CallShape shape = warm_up_package(*engine, *package);
      if (measure) {
        for (const auto& [pictures, boxes, padded] : exec_shapes(shape))
          measure_alone(*engine, *package, pictures, boxes, timed_calls, *device_, *models_.demand);
      }
    } catch (const ModelError& error) {
      throw ModelError(folder + ": " + error.what());
    }
    if (!measure && models_.cache->statistics().evictions > evictions)
      break;  // the budget does not hold them all: the rest is loaded when its turn comes
  }
  models_.measured = true;
  warm_ = device_->counts();
  return clock.now_ns() - begun_ns;
}

// In the shapes of the run, of which the largest is returned; where a GPU's memory runs out, in smaller ones.
CallShape Lane::warm_up_package(Engine& engine, const Package& package) {
  while (true) {
    CallShape shape = call_shape(package, chain_, context_.batch_size, *models_.limits);
    if (package.task == Task::segment && !shape.padded && !models_.memory) shape.boxes = 1;
    try {
      for (const auto& [pictures, boxes, padded] : exec_shapes(shape))
        millrace::warm_up(engine, package, pictures, boxes, *device_);
      return shape;
    } catch (const OutOfMemoryError&) {
      const CallShape next = call_shape(package, chain_, context_.batch_size, *models_.limits);
      const bool smaller = next.pictures < shape.pictures || next.boxes < shape.boxes;
      if (device_->stream() == nullptr || !smaller) throw;
      device_->wait();
      engine.trim();
      device_->stream()->trim();
    }
  }
}

// Calls of models that do not fit are made smaller by the stages themselves. What is left has to do with all that a
// batch holds: its pictures, the models' inputs, embeddings, logits.
void Lane::run(std::size_t stage, Batch& batch) {
  if (batch.through_lane) return;
  const ChainLink& link = *links_[stage];
  try {
    if (fits([&] { run_stage(link, *stages_[stage], batch); })) return;
    redo_in_halves(batch);
    batch.through_lane = true;
  } catch (const DeviceError& error) {
    throw RunEnded(link.info.name, DeviceError(link.info.name + ", " + name_of(batch) + ": " + error.what() +
                                               "; nothing more can be done on this device by this process: the same "
                                               "command goes on from here"));
  }
}

// After all that the lane holds was released. A single picture is tried once more too: then it fails.
void Lane::redo_in_halves(Batch& batch) {
  release(batch);
  ++context_.counters[redone_batches];
  std::vector<std::shared_ptr<Frame>> left;
  std::copy_if(batch.frames.begin(), batch.frames.end(), std::back_inserter(left),
               [](const auto& frame) { return !frame->failed(); });
  const auto middle = left.begin() + static_cast<std::ptrdiff_t>(left.size() / 2);
  for (const auto& [begin, end] : {std::pair{left.begin(), middle}, {middle, left.end()}}) {
    if (begin == end) continue;
    Batch part({begin, end});
    for (const auto& frame : part.frames) {
      frame->split = frame->again = true;
      prepare_again_(*frame);
    }
    std::string stage;
    const bool done = fits([&] {
      for (std::size_t index = 0; index < links_.size() && !part.empty(); ++index) {
        stage = links_[index]->info.name;
        run_stage(*links_[index], *stages_[index], part);
      }
    });
    if (done) continue;
    if (part.frames.size() > 1) {
      redo_in_halves(part);
      continue;
    }
    release(part);
    part.frames.front()->fail(stage, device_->stream() == nullptr ? Reason::oom_host : Reason::oom_device,
                              "there was not enough memory for this picture, not even alone");
  }
}

// What an attempt left behind, and what is kept for later.
void Lane::release(Batch& batch) {
  device_->abandon();
  batch.columns.clear();
  for (const ChainLink* link : links_) {
    for (const auto& frame : batch.frames) {
      if (frame->failed()) continue;
      for (const FieldBase* field : link->info.writes) frame->columns.drop(*field);
    }
  }
  for (const auto& stage : stages_) stage->trim();
  device_->wait();
  if (Stream* const stream = device_->stream()) stream->trim();
}

}  // namespace millrace
