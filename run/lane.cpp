#include "run/lane.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <string>
#include <utility>

#include "gpu/stream.hpp"
#include "io/files/files.hpp"
#include "io/files/source_names.hpp"
#include "run/run_ended.hpp"

namespace millrace {
namespace {

constexpr int timed_calls = 5;  // for each method and shape

/// The models of the run, with the cache and the limits of the lane's device.
StageModels of_lane(const StageModels& models, DeviceModels& device) {
  return {models.batch_size,   models.packages, device.cache.get(),
          device.limits.get(), models.images,   models.picture_inputs};
}

/// Adds the time of its life.
class Stopwatch {
 public:
  explicit Stopwatch(std::int64_t& total_ns) : total_ns_(total_ns) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() { total_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begun_).count(); }

 private:
  std::int64_t& total_ns_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

template <class Work>
auto timed(std::int64_t& total_ns, const Work& work) {
  const Stopwatch watch(total_ns);
  return work();
}

/// Calls `work`. Returns false if memory ran out.
template <class Work>
bool fits(const Work& work) {
  try {
    work();
    return true;
  } catch (const OutOfMemoryError&) {
  } catch (const std::bad_alloc&) {  // from the stream, or from the host
  }
  return false;
}

}  // namespace

std::string name_of(const Batch& batch) {
  const std::size_t others = batch.frames.size() - 1;
  return "batch " + std::to_string(batch.position().batch) + " (" + display_name(batch.frames.front()->item.path) +
         (others == 0 ? "" : " and " + std::to_string(others) + " more") + ")";
}

Lane::Lane(const std::vector<PlannedView>& views, const StageContext& context, DeviceModels& models,
           std::unique_ptr<Device> device, PrepareAgain prepare_again)
    : models_(models),
      device_(std::move(device)),
      stage_models_(of_lane(context.models, models)),
      context_{stage_models_,  device_.get(),         context.counters,  context.views,
               context.source, context.output_folder, context.call_costs},
      planned_(planned_models(views, context.models.packages)),
      prepare_again_(std::move(prepare_again)),
      stages_(make_stages<LaneStage>(views, Section::lane, [this](const ChainLink& link) {
        return std::shared_ptr<LaneStage>(link.entry->make_lane_stage(link.options, context_, link.info));
      })) {
  // Before an allocation fails, LibTorch frees the memory that it keeps. The cache can evict each engine at any time.
  if (Stream* stream = device_->stream()) stream->when_short([cache = models_.cache.get()] { cache->trim(); });
}

void Lane::warm_up() {
  if (device_->stream() == nullptr) {
    share_warm_up();
    return;
  }
  call_models_in_turn();
  device_->count_work(models_.work);
}

// The first lane of a GPU measures, before the others.
void Lane::call_models_in_turn() {
  {
    const std::lock_guard first(*models_.first);
    if (!models_.warm) {
      // Calls of other lanes on the same GPU would lengthen the measured times.
      const std::lock_guard alone(*models_.alone);
      call_models(models_.demand != nullptr);
      models_.warm = true;
      return;
    }
  }
  // Nobody measures, so the later lanes call the models at the same time.
  const std::shared_lock together(*models_.alone);
  call_models(false);
}

// A call of one lane on the host leaves nothing to do for another. So each model is called once, by any lane.
void Lane::share_warm_up() {
  // Models that exceed the budget of the cache are loaded when stages need them.
  while (models_.cache->statistics().evictions == 0) {
    std::unique_lock lock(*models_.first);
    if (models_.called == planned_.size()) break;
    const PlannedModel& model = planned_[models_.called++];
    lock.unlock();
    call_model(model, false);
  }
}

void Lane::call_models(bool measure) {
  const auto evictions = models_.cache->statistics().evictions;
  for (const PlannedModel& model : planned_) {
    call_model(model, measure);
    // The lane that measures calls every model, even if the cache evicts some.
    if (!measure && models_.cache->statistics().evictions > evictions)
      break;  // the models exceed the budget of the cache: stages load the others when they need them
  }
  warm_ = device_->counts();
}

void Lane::call_model(const PlannedModel& model, bool measure) {
  WarmUpTimes& times = warm_up_times_;
  const auto engine = timed(times.load_ns, [&] { return models_.cache->acquire(*model.package); });
  try {
    const CallShape shape = timed(times.first_calls_ns, [&] { return warm_up_model(*engine, model); });
    if (!measure) return;
    const Stopwatch watch(times.timing_ns);
    for (const CallShape& one : exec_shapes(shape)) {
      // If memory runs out here, the report lacks the times of this shape.
      static_cast<void>(
          fits([&] { measure_alone(*engine, *model.package, one.rows, timed_calls, *device_, *models_.demand); }));
    }
  } catch (const ModelError& error) {
    throw ModelError(model.use.folder + ": " + error.what());
  }
}

// Calls the model in the shapes of the run and returns the largest.
// If the memory of a GPU runs out, it continues with the smaller shapes that the limits then allow.
CallShape Lane::warm_up_model(Engine& engine, const PlannedModel& model) {
  const auto shape_now = [&] {
    CallShape shape = call_shape(model, stage_models_.batch_size, *models_.limits);
    for (const Method& method : model.package->methods) {
      // One row (a box, for example) is enough to warm up, and faster, if memory is not planned and calls not padded.
      if (!method.rows_are_pictures() && !shape.padded && !models_.memory) shape.rows[method.name] = 1;
      shape.row_counts[method.name] = engine.row_counts(method.name);
    }
    return shape;
  };
  const auto is_smaller_than = [&](const CallShape& shape) {
    const MethodRows next = shape_now().rows;
    return std::any_of(next.begin(), next.end(),
                       [&](const auto& entry) { return entry.second < shape.rows.at(entry.first); });
  };
  while (true) {
    const CallShape shape = shape_now();
    try {
      for (const CallShape& one : exec_shapes(shape)) millrace::warm_up(engine, *model.package, one.rows, *device_);
      return shape;
    } catch (const NoMemoryForInputs& error) {
      // If the method has one row already, the others get fewer: its inputs can contain their rows, such as embeddings.
      const bool only_this = shape.rows.at(error.method) > 1;
      for (const auto& [method, rows] : shape.rows) {
        if (rows > 1 && (method == error.method || !only_this))
          models_.limits->ran_out(model.package->id(), method, rows);
      }
      if (!is_smaller_than(shape)) throw;
    } catch (const OutOfMemoryError&) {
      // All programs share the memory of the host, so smaller calls are not tried there.
      if (device_->stream() == nullptr || !is_smaller_than(shape)) throw;
    }
  }
}

// Stages split model calls that do not fit (call_rows).
// Here memory has run out for the other data of a batch: its pictures, inputs of models, embeddings, logits.
void Lane::run(std::size_t stage, Batch& batch) {
  // redo_in_halves() has run all stages already.
  if (batch.through_lane) return;
  const auto& [link, object] = stages_of(batch)[stage];
  try {
    // `&link = link`, because clang 14 cannot capture structured bindings by [&].
    if (fits([&, &link = link, &object = object] { run_on_device(*link, *object, batch); })) return;
    redo_in_halves(batch);
    batch.through_lane = true;
  } catch (const DeviceError& error) {
    const std::string& name = link->info.name;
    throw RunEnded(name, DeviceError(name + ", " + name_of(batch) + ": " + error.what() +
                                     "; this process cannot use the device any more. Run the same command "
                                     "again to resume"));
  } catch (const StorageError& error) {  // a stage keeps finished parts of large items
    throw RunEnded(link->info.name, error);
  } catch (const PackageError& error) {  // every picture would fail
    throw RunEnded(link->info.name, error);
  }
}

std::int64_t Lane::bytes(const Frame& frame) const {
  std::int64_t bytes = 0;
  for (const auto& [link, object] : stages_[static_cast<std::size_t>(frame.item.view)]) bytes += object->bytes(frame);
  return bytes;
}

void Lane::run_on_device(const ChainLink& link, LaneStage& stage, Batch& batch) {
  device_->begin_stage(link.info.name);
  run_stage(link, stage, batch);
  // The bytes of uploaded pictures go back to the gate. The next batch may need them before the lane gets it.
  // If all pictures have failed, the graph skips the stages that follow.
  if (batch.empty() || &link == stages_of(batch).back().link) device_->settle();
}

// First frees all data that the lane holds. A batch of one picture gets one more try, then the picture fails.
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
      // `split` appears in the line as "exec". `retried` keeps counters from counting the picture twice.
      frame->split = frame->retried = true;
      prepare_again_(*frame);
    }
    std::string stage;
    const bool done = fits([&] {
      for (const auto& [link, object] : stages_of(part)) {
        if (part.empty()) break;
        stage = link->info.name;
        run_on_device(*link, *object, part);
      }
    });
    if (done) continue;
    if (part.frames.size() > 1) {
      redo_in_halves(part);
      continue;
    }
    release(part);
    part.frames.front()->fail(stage, device_->stream() == nullptr ? Reason::oom_host : Reason::oom_device,
                              "there was not enough memory for this picture, even alone");
  }
}

// Frees the data of a failed attempt, and memory that stages keep for later batches.
void Lane::release(Batch& batch) {
  // Otherwise the next wait() would deliver results of the failed attempt.
  device_->abandon();
  batch.columns.clear();
  for (const auto& [link, object] : stages_of(batch)) {
    for (const auto& frame : batch.frames) {
      if (frame->failed()) continue;
      for (const FieldBase* field : link->info.writes) frame->columns.drop(*field);
    }
  }
  // Stages of other views keep memory on this device too.
  for (const auto& of_view : stages_) {
    for (const auto& [link, object] : of_view) object->trim();
  }
  device_->wait();
  if (Stream* const stream = device_->stream()) stream->trim();
}

}  // namespace millrace
