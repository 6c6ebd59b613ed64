#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/decode/decode.hpp"
#include "io/input/scan.hpp"
#include "stages/batch.hpp"
#include "stages/counters.hpp"
#include "stages/options.hpp"

namespace millrace {

class Device;
class PixelCache;
class StageModels;
struct Package;

/// Where a stage runs: on frames before batching (TBB workers), on batches in the lane (its thread, in order), or on
/// batches after it (TBB workers).
enum class Section { frame, lane, batch };

/// A stage as a recipe names it.
struct StagePlace {
  StagePlace(const char* stage_name) : name(stage_name), stage(stage_name) {}
  StagePlace(std::string stage_name) : name(stage_name), stage(std::move(stage_name)) {}
  StagePlace(std::string own_name, std::string stage_name) : name(std::move(own_name)), stage(std::move(stage_name)) {}
  std::string name;   ///< unique in the recipe; of its options and, where it has some, of its fields
  std::string stage;  ///< a row of the table
  bool operator==(const StagePlace&) const = default;
};

/// A model that a stage calls, as its options say.
struct ModelUse {
  struct Calls {
    std::string method;
    int rows = 0;            ///< of a call at most; 0: the batch
    int kept_a_picture = 0;  ///< rows of outputs that a lane keeps at once
    int kept_an_object = 0;
    bool operator==(const Calls&) const = default;
  };
  std::string option;          ///< of the stage, which names the package
  std::string folder;          ///< of the package; empty: none is named
  std::string_view task;       ///< Task::name
  std::vector<Calls> calls;    ///< every method of the task
  bool padded = false;         ///< calls for fewer rows have powers of two of them
  bool of_pictures = true;     ///< `preprocess` makes inputs of whole pictures for it
  bool boxes_replace = false;  ///< boxes of a manifest do as well
  bool one_width = false;      ///< rows of its output are as wide in all views: they make a side column
  /// Throws UsageError where the stage, with its options, cannot use this package of the task.
  std::function<void(const Package& package)> check{};
  std::string remedy;            ///< completes "no detector is named: "
  std::string recipe_without{};  ///< a recipe of the program that needs no such model, for the same message
};

/// What the builder and `millrace stages` know of a stage.
struct StageInfo {
  std::string name;  ///< in the recipe
  Section section = Section::frame;
  std::string summary;
  Fields reads;  ///< must be written by an earlier stage
  Fields writes;
  Fields uses;                        ///< read where an earlier stage wrote them
  CounterInfos counters{};            ///< that it counts
  std::vector<ModelUse> models{};     ///< that it calls
  int objects = 0;                    ///< that it may find in a picture
  std::shared_ptr<const void> own{};  ///< S::Own of a stage that may stand in a recipe several times
};

/// One view of the run: pictures that a pattern or a manifest selects, and their options.
struct View {
  std::string name;
  std::string pattern;                            ///< glob on the relative path; empty: every picture
  std::map<std::string, OptionValues> options{};  ///< by stage: what is different for these pictures
};

/// Where pixels come from.
struct PixelSource {
  std::string root{};                  ///< what item paths are relative to
  std::vector<DecodeLimits> limits{};  ///< by view
  /// Memory for decoded pixels from which they go to a device at full speed; empty: any memory will do. Where it throws
  /// std::bad_alloc, any other is taken: slower, and right.
  std::function<std::shared_ptr<void>(std::size_t bytes)> memory{};
  PixelCache* cache = nullptr;  ///< null: every picture is decoded
};

/// What a stage may use; outlives the stage.
struct StageContext {
  StageModels& models;
  Device* device = nullptr;  ///< the lane's; null for the stages before and after the lane
  Counters& counters;
  const std::vector<View>& views;  ///< in the order of the plan
  const PixelSource& source;
  const std::string& output_folder;  ///< for side files
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
  /// Throws UsageError for values that cannot be meant; `name` is that of the stage in the recipe, for messages.
  std::function<StageOptions(const OptionValues&, const std::string& name)> parse;
  /// For the stage that the recipe calls `name`. Throws UsageError for options that contradict each other.
  std::function<StageInfo(const StageOptions&, const std::string& name)> info;
  template <class Stage>
  using Make = std::function<std::unique_ptr<Stage>(const StageOptions&, const StageContext&, const StageInfo&)>;
  Make<FrameStage> make_frame_stage{};
  Make<LaneStage> make_lane_stage{};
  Make<BatchStage> make_batch_stage{};

  /// With the defaults of its options.
  StageInfo default_info() const { return info(parse({}, name), name); }
};

/// The row of stage class S. Declared here so that the table needs no stage's header; defined in stages/stage_entry.hpp
/// and instantiated in the stage's own source.
template <class S>
StageEntry stage_entry();

}  // namespace millrace
