#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stages/registry.hpp"
#include "stages/stage.hpp"

namespace millrace {

/// A stage at its position in a recipe.
struct ChainLink {
  const StageEntry* entry = nullptr;
  StageOptions options;
  StageInfo info;
  Access access;                   ///< fields that the stage may read and write
  Fields frees;                    ///< fields to free after this stage, because no later stage reads them
  bool has_recipe_options = true;  ///< the stage has the recipe's options; false if the view sets its own
};

/// The stages of a recipe in order: stages on frames, then stages in the lane, then stages on batches.
/// A view with options of its own has its own chain of the same stages.
class Chain {
 public:
  /// The option values of the stage that the recipe calls `name`.
  using Values = std::function<OptionValues(const std::string& name)>;

  /// Throws UsageError in these cases:
  /// - `stages` is empty, or a stage name is unknown or appears twice
  /// - an option value is not valid
  /// - the sections are out of order
  /// - a stage reads a field that no earlier stage writes; the message names a stage that writes it
  /// - two stages write one field
  ///
  /// Throws std::logic_error in these cases, or UsageError if the name comes from the recipe:
  /// - two fields have the same name, or add the same key to objects
  /// - a field has the name of a fixed key of the segment line
  /// - the name of a side column cannot be a part of a file name
  ///
  /// `table` must outlive the chain.
  Chain(const std::vector<RecipeStage>& stages, const Values& values,
        const std::vector<StageEntry>& table = stage_table());

  /// The same stages with the options of a view.
  /// If `differs(name)` is true, `values(name)` gives all options of that stage. Other stages keep theirs.
  /// Throws as the constructor.
  Chain for_view(const std::function<bool(const std::string& name)>& differs, const Values& values) const;

  const std::vector<ChainLink>& links() const { return links_; }
  /// The links of a section, in order. They belong to the chain.
  std::vector<const ChainLink*> of(Section section) const;
  /// The first link whose stage has this name in the table; null if the recipe has none.
  const ChainLink* find(const std::string& stage) const;
  /// The maximum number of objects that a stage may find in a picture.
  int objects() const;

  /// The options of stage class S: those of its first link, or the defaults if the recipe has no such stage.
  template <class S>
  typename S::Options options() const {
    const ChainLink* link = find(S::name);
    return link == nullptr ? typename S::Options() : std::any_cast<typename S::Options>(link->options);
  }

 private:
  Chain() = default;
  void add(ChainLink link, const std::vector<StageEntry>& table);
  void finish();

  std::vector<ChainLink> links_;
  const std::vector<StageEntry>* table_ = nullptr;
};

/// The first stage that needs pictures that are decoded whole, which may be `encode` with a format; null: none.
const ChainLink* reader_of_pixels(const Chain& chain);
/// Whether all stages that need pixels take files that are read in parts (Frame::region).
bool reads_in_parts(const Chain& chain);

/// Runs a stage on a frame that has not failed, then frees the fields in `link.frees`.
/// Exceptions of the stage pass through.
void run_stage(const ChainLink& link, const FrameStage& stage, Frame& frame);

/// Runs a stage on a batch, then frees the fields in `link.frees`. Exceptions of the stage pass through.
void run_stage(const ChainLink& link, LaneStage& stage, Batch& batch);
void run_stage(const ChainLink& link, const BatchStage& stage, Batch& batch);

/// Marks the frame as failed because `stage` threw `thrown`. Drops all fields that are not part of the segment line.
void fail_frame(Frame& frame, const std::string& stage, const std::exception_ptr& thrown);

}  // namespace millrace
