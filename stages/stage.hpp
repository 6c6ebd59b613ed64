#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/package.hpp"
#include "stages/batch.hpp"
#include "stages/counters.hpp"
#include "stages/options.hpp"

namespace millrace {

class CallLimits;
class Device;
class ModelCache;
class PixelCache;

/// Where a stage runs: on frames before batching (TBB workers), on batches in the lane (its thread, in order), or on
/// batches after it (TBB workers).
enum class Section { frame, lane, batch };

/// What the builder and `millrace stages` know of a stage.
struct StageInfo {
  std::string name;
  Section section = Section::frame;
  std::string summary;
  Fields reads;  ///< must be written by an earlier stage
  Fields writes;
  Fields uses;  ///< read where an earlier stage wrote them
  CounterInfos counters{};
};

/// One view of the run: pictures that a pattern or a manifest gives the same detector.
struct View {
  std::string name;
  std::string pattern;   ///< glob on the relative path; empty: every picture
  std::string detector;  ///< folder of the model package; empty: boxes come from the manifest
};

/// What a stage may use; outlives the stage.
struct StageContext {
  const std::vector<View>& views;
  const std::string& segmenter;      ///< folder of the model package; empty: none
  const std::string& output_folder;  ///< for side files
  const std::string& input_root;     ///< what item paths are relative to
  const DecodeLimits& decode_limits;
  int batch_size = 1;
  const std::map<std::string, std::shared_ptr<const Package>>&
      packages;  ///< by folder, every one that the views and the run name
  ModelCache& models;
  Counters& counters;
  Device* device = nullptr;            ///< the lane's; null for the stages before and after the lane
  DType detector_images = DType::f32;  ///< type of the models' inputs
  DType segmenter_images = DType::f32;
  /// Memory for decoded pixels from which they go to a device at full speed; empty: any memory will do. Where it throws
  /// std::bad_alloc, any other is taken: slower, and right.
  std::function<std::shared_ptr<void>(std::size_t bytes)> pixel_memory{};
  PixelCache* pixel_cache = nullptr;  ///< null: every picture is decoded
  CallLimits* limits = nullptr;       ///< of calls on the lane's device; null: none
};

/// A stage before batching: one object for all, whose `run` is called from many threads at once.
class FrameStage {
 public:
  virtual ~FrameStage() = default;
  virtual void run(Frame& frame) const = 0;
};

/// A stage in the lane: one object a lane, used by one thread, so that it may keep what the next batch needs again.
class LaneStage {
 public:
  virtual ~LaneStage() = default;
  virtual void run(Batch& batch) = 0;
  /// Gives back memory that is kept for later batches.
  virtual void trim() {}
};

/// A stage after the lane: one object for all, whose `run` is called from many threads at once.
class BatchStage {
 public:
  virtual ~BatchStage() = default;
  virtual void run(Batch& batch) const = 0;
};

/// The Options struct of some stage.
using StageOptions = std::any;

/// A row of the table in registry.cpp. Of the three that make a stage, the one of its base class is there.
struct StageEntry {
  std::string name;
  std::vector<OptionInfo> options;
  std::function<std::vector<OptionInfo>(const StageOptions&)> describe;  ///< `options` with these values in place
  std::function<StageOptions(const OptionValues&)> parse;  ///< throws UsageError for values that cannot be meant
  std::function<StageInfo(const StageOptions&)> info;      ///< throws UsageError for options that contradict each other
  std::function<std::unique_ptr<FrameStage>(const StageOptions&, const StageContext&)> make_frame_stage{};
  std::function<std::unique_ptr<LaneStage>(const StageOptions&, const StageContext&)> make_lane_stage{};
  std::function<std::unique_ptr<BatchStage>(const StageOptions&, const StageContext&)> make_batch_stage{};

  /// With the defaults of its options.
  StageInfo default_info() const { return info(parse({})); }
};

/// The row of stage class S. Declared here so that the table needs no stage's header; defined in stages/stage_entry.hpp
/// and instantiated in the stage's own source.
template <class S>
StageEntry stage_entry();

}  // namespace millrace
