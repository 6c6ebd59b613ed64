#include "run/profile_lane.hpp"

#include <exception>
#include <new>
#include <utility>

#include "gpu/stream.hpp"
#include "io/files/source_names.hpp"
#include "models/engines/threads.hpp"
#include "run/execution.hpp"
#include "run/job.hpp"
#include "run/reader.hpp"

namespace millrace {
namespace {

constexpr int pictures_of_a_view = 4;  // more would only take memory: calls take the same time for all pictures

std::vector<View> named(const std::vector<PlannedView>& views) {
  std::vector<View> all;
  for (const PlannedView& view : views) all.push_back({view.name, "", {}});
  return all;
}

PixelSource source_of(const std::vector<PlannedView>& views, const ResolvedConfig& resolved, const Devices& devices) {
  PixelSource source;
  source.limits = decode_limits(views, resolved.graph.slab_bytes);
  source.memory = pixel_memory(devices);
  return source;
}

}  // namespace

ProfileLane::ProfileLane(const Config& config, const Packages& packages, const Devices& devices,
                         std::vector<std::string> view_names, const EngineFactory& factory)
    : config_(config),
      packages_(packages),
      resolved_(resolve_for(config, "", devices)),
      views_(planned_views(config, view_names)),
      device_(make_device(devices, 0, "profile")),
      cache_(
          config.models.budget,
          [engines = engines_on(devices, 0, resolved_.precisions, factory), recorded = recorded_](
              const Package& package, const EngineOptions& options) {
            return recording(engines(package, options), package, recorded);
          },
          EngineOptions{.threads = resolved_.team}),
      models_{1,
              packages,
              &cache_,
              nullptr,
              [precisions = resolved_.precisions](const Package& package) {
                return image_type(precisions.of(*package.task));
              },
              picture_inputs(views_)},
      counters_(counters_of_run()),
      view_names_(named(views_)),
      source_(source_of(views_, resolved_, devices)),
      context_{models_, device_.get(), counters_, view_names_, source_, no_folder_} {}

std::vector<std::string> ProfileLane::record(const ChosenPictures& pictures, std::uint64_t seed,
                                             const std::function<bool()>& stopped) {
  source_.root = pictures.root;
  std::vector<std::string> notes;
  for (std::size_t view = 0; view < views_.size(); ++view) {
    std::string failure;
    bool any = false;
    for (const Boxes boxes : {Boxes::as_planned, Boxes::of_detector, Boxes::grid}) {
      if (!lacks_inputs(view)) break;
      int done = 0;
      for (const Item& item : pictures.of_views[view]) {
        if (done == pictures_of_a_view || stopped()) break;
        if (run(item, boxes, seed, failure)) ++done;
      }
      any = any || done > 0;
    }
    if (!any && !failure.empty() && !stopped())
      notes.push_back("no picture of view '" + display_name(views_[view].name) + "' could be decoded (" + failure +
                      "), so the inputs of its models are artificial");
  }
  recorded_->finish();
  return notes;
}

// Returns false if the picture cannot be decoded, and sets `failure`.
bool ProfileLane::run(const Item& item, Boxes boxes, std::uint64_t seed, std::string& failure) {
  const Chain& chain = *views_[static_cast<std::size_t>(item.view)].chain;
  const auto frame = std::make_shared<Frame>(item, PlanPosition{});
  if (boxes == Boxes::of_detector) frame->item.boxes.reset();
  std::string stage = "read";
  try {
    // Pictures are read whole: the time of a call does not depend on levels and micrometres.
    Reader(source_.root, source_.limits, std::vector<PartsOptions>(views_.size()), config_.read.max_file, false)
        .read(*frame);
    for (const ChainLink* link : chain.of(Section::frame)) {
      stage = link->info.name;
      run_stage(*link, *link->entry->make_frame_stage(link->options, context_, link->info), *frame);
      if (frame->failed()) break;
    }
  } catch (...) {
    fail_frame(*frame, stage, std::current_exception());
  }
  if (frame->failed()) {
    failure = frame->failure->detail;
    return false;
  }
  if (boxes == Boxes::grid) frame->item.boxes = grid_of_boxes(frame->info.width, frame->info.height, seed);
  // Stages after the last model would only take time.
  auto links = chain.of(Section::lane);
  while (!links.empty() && links.back()->info.models.empty()) links.pop_back();
  Batch batch({frame});
  // New stages for each picture: `preprocess` reuses its buffers, and recorded inputs are in them.
  std::vector<std::unique_ptr<LaneStage>> stages;
  try {
    for (const ChainLink* link : links) {
      stages.push_back(link->entry->make_lane_stage(link->options, context_, link->info));
      run_stage(*link, *stages.back(), batch);
      if (batch.empty()) break;
    }
    device_->wait();
  } catch (const OutOfMemoryError&) {  // the rows of sizes that do not fit say so
    device_->abandon();
  } catch (const std::bad_alloc&) {
    device_->abandon();
  } catch (const PackageError&) {  // the measurement of the method reports it, after the rows of those before it
    device_->abandon();
  }
  return true;
}

// Whether a model of the view has a method without recorded inputs.
bool ProfileLane::lacks_inputs(std::size_t view) const {
  for (const PlannedModel& model : planned_models({views_[view]}, packages_)) {
    for (const Method& method : model.package->methods) {
      if (!recorded_->has(*model.package, method.name)) return true;
    }
  }
  return false;
}

void ProfileLane::give_back(Engine& engine) {
  device_->abandon();
  engine.trim();
  if (Stream* const stream = device_->stream()) {
    stream->trim();
  } else {
    release_freed_memory();
  }
}

std::vector<Tensor> ProfileLane::inputs(const Package& package, const Method& method, int rows) {
  if (has_inputs(package, method)) return recorded_->make(package, method, rows, *device_);
  CallRows call{1, 0};
  (method.rows_are_pictures() ? call.pictures : call.others) = rows;
  return warm_up_inputs(*engine(package), package, method, call, *device_);
}

}  // namespace millrace
