#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/windows.hpp"
#include "io/decode/decode.hpp"
#include "io/input/scan.hpp"
#include "stages/batch.hpp"
#include "stages/counters.hpp"
#include "stages/options.hpp"

namespace millrace {

class CallCosts;
class Device;
class Nvjpeg;
class PixelCache;
class StageModels;
struct Package;

/// Where a stage runs. A recipe lists the stages of the sections in this order.
enum class Section {
  frame,  ///< on single frames, before they are put into batches; on TBB workers
  lane,   ///< on batches in a lane, one after the other; on the lane's thread
  batch   ///< on batches after the lane; on TBB workers
};

/// A stage as a recipe names it.
struct RecipeStage {
  RecipeStage(const char* stage_name) : name(stage_name), stage(stage_name) {}
  RecipeStage(std::string stage_name) : name(stage_name), stage(std::move(stage_name)) {}
  RecipeStage(std::string own_name, std::string stage_name) : name(std::move(own_name)), stage(std::move(stage_name)) {}
  std::string name;   ///< unique in the recipe; names its options and, if it has S::Own, its field
  std::string stage;  ///< name of its row in the table
  bool operator==(const RecipeStage&) const = default;
};

/// A model that a stage calls, by the stage's options.
struct ModelUse {
  struct Calls {
    std::string method;
    int rows = 0;              ///< maximum rows of a call; 0: the batch size
    std::string option{};      ///< of the stage, that is `rows`; for predictions of other values. Empty: none
    int kept_per_picture = 0;  ///< output rows that a lane keeps at once, for each picture
    int kept_per_object = 0;   ///< the same for each object
    bool operator==(const Calls&) const = default;
  };
  std::string option;          ///< option of the stage that names the package
  std::string folder;          ///< of the package; empty: none is named
  std::string_view task;       ///< Task::name
  std::string_view or_task{};  ///< another task whose packages the stage takes too; empty: none
  std::vector<Calls> calls;    ///< one for each method of the task, or of both
  bool padded = false;         ///< smaller calls of TorchScript are padded to a power of two of rows
  bool one_shape = false;      ///< smaller calls of TorchScript are padded to the maximum of rows
  bool of_pictures = true;     ///< `preprocess` makes inputs of whole pictures for it
  bool of_windows = false;     ///< its input has the size of the windows that an earlier stage names
  bool boxes_replace = false;  ///< boxes of a manifest can replace the model
  bool one_width = false;      ///< its output goes to a side column, so all views need rows of the same width
  /// Throws UsageError if the stage, with its options, cannot use this package of the task.
  std::function<void(const Package& package)> check{};
  std::string remedy;            ///< completes the message "no detector is named: "
  std::string recipe_without{};  ///< for the same message: a recipe of the program that needs no such model
};

/// The copies and waits that a stage of the lane makes on a GPU, at most. The report compares them with the real ones.
struct DeviceUse {
  int uploads = 0;                              ///< for each picture
  int downloads = 0;                            ///< for each batch
  int waits = 0;                                ///< for each batch
  const CounterInfo* downloads_each = nullptr;  ///< counts model calls that need a download each
  const CounterInfo* slabs_in = nullptr;        ///< counts slabs of rows: each needs one upload
  const CounterInfo* slabs_out = nullptr;       ///< counts slabs of labels: each needs one download and one wait
};

/// What a stage declares about itself, for the chain and `millrace stages`.
struct StageInfo {
  std::string name;  ///< in the recipe
  Section section = Section::frame;
  std::string summary;
  Fields reads;  ///< fields that an earlier stage must write
  Fields writes;
  Fields uses;                     ///< fields that it reads if an earlier stage writes them
  CounterInfos counters{};         ///< counters that it counts
  std::vector<ModelUse> models{};  ///< models that it calls
  DeviceUse device{};
  bool in_parts = false;              ///< takes files that are read in parts (Frame::region)
  std::vector<int> window{};          ///< sides of the windows that later models see; empty: those of their packages
  int window_align = 1;               ///< windows start at multiples of it, so no side may be shorter
  bool compares_values = false;       ///< with numbers of the file, which a package may scale before it resamples
  bool mirrors_z = false;             ///< later models see windows mirrored along z, which pictures do not have
  int objects = 0;                    ///< maximum number of objects that it may find in a picture
  std::shared_ptr<const void> own{};  ///< S::Own of a stage that a recipe may name several times
};

/// One view of the run: pictures that a pattern or a manifest selects, and their options.
struct View {
  std::string name;
  std::string pattern;                            ///< glob on the relative path; empty: every picture
  std::map<std::string, OptionValues> options{};  ///< by stage: options with other values for these pictures
};

/// Where pixels come from.
struct PixelSource {
  std::string root{};                  ///< folder from which relative paths of items start
  std::vector<DecodeLimits> limits{};  ///< by view
  /// Allocates memory for decoded pixels from which a device copies at full speed. Any thread may call it.
  /// Empty: ordinary memory. Ordinary memory also replaces it when it throws std::bad_alloc: slower, same results.
  std::function<std::shared_ptr<void>(std::size_t bytes)> memory{};
  PixelCache* cache = nullptr;       ///< null: every picture is decoded
  std::shared_ptr<Nvjpeg> nvjpeg{};  ///< null: the CPU decodes every picture
};

/// Everything that a stage may use. Must outlive the stage.
struct StageContext {
  StageModels& models;
  Device* device = nullptr;  ///< of the lane; null for stages before and after the lane
  Counters& counters;
  const std::vector<View>& views;  ///< in the order of the plan
  const PixelSource& source;
  const std::string& output_folder;  ///< for side files
  CallCosts* call_costs = nullptr;   ///< of the run; null: nobody wants them
};

/// A stage on single frames, before they are put into batches. Many threads call run() of one object at once.
class FrameStage {
 public:
  virtual ~FrameStage() = default;
  /// An exception fails the frame: PictureError names the reason, std::bad_alloc is oom_host, others are `internal`.
  virtual void run(Frame& frame) const = 0;
};

/// A stage in a lane. Each lane has its own object, which only the lane's thread uses.
/// So the object may keep data for the next batch.
class LaneStage {
 public:
  virtual ~LaneStage() = default;
  /// If memory runs out (OutOfMemoryError, std::bad_alloc), the lane retries the batch in halves.
  /// A DeviceError ends the run. Any other exception fails all frames of the batch.
  virtual void run(Batch& batch) = 0;
  /// Frees memory that is kept for later batches.
  virtual void trim() {}
  /// Bytes that the stage needs for a picture in addition to its pixels. Many threads call it, on one of the objects.
  /// The gate grants them with the bytes of the pixels.
  virtual std::int64_t bytes(const Frame& /*frame*/) const { return 0; }
};

/// A stage on batches after the lane. Many threads call run() of one object at once.
class BatchStage {
 public:
  virtual ~BatchStage() = default;
  /// A StorageError ends the run. Any other exception fails all frames of the batch.
  virtual void run(Batch& batch) const = 0;
};

/// Contains the Options struct of a stage.
using StageOptions = std::any;

/// A row of the table in registry.cpp. Of the three functions that make a stage, it has that of the stage's base class.
struct StageEntry {
  std::string name;
  std::vector<OptionInfo> options;
  /// `options`, with the values of these options as `default_value`.
  std::function<std::vector<OptionInfo>(const StageOptions&)> describe;
  /// Throws UsageError for values that are not valid. `name` is the name of the stage in the recipe, for messages.
  std::function<StageOptions(const OptionValues&, const std::string& name)> parse;
  /// The declaration of the stage that the recipe calls `name`.
  /// Throws UsageError for options that contradict each other.
  std::function<StageInfo(const StageOptions&, const std::string& name)> info;
  template <class Stage>
  using Make = std::function<std::unique_ptr<Stage>(const StageOptions&, const StageContext&, const StageInfo&)>;
  Make<FrameStage> make_frame_stage{};
  Make<LaneStage> make_lane_stage{};
  Make<BatchStage> make_batch_stage{};

  /// The declaration with default options.
  StageInfo default_info() const { return info(parse({}, name), name); }
};

/// The row of stage class S. It is declared here so that the table needs no header of a stage.
/// stages/stage_entry.hpp defines it, and the source of the stage instantiates it.
template <class S>
StageEntry stage_entry();

}  // namespace millrace
