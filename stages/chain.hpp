#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stages/registry.hpp"
#include "stages/stage.hpp"

namespace millrace {

/// One stage of a recipe in its place.
struct ChainLink {
  const StageEntry* entry = nullptr;
  StageOptions options;
  StageInfo info;
  Access access;           ///< what the stage may touch
  Fields frees;            ///< fields that nobody reads after this stage
  bool as_in_base = true;  ///< options are those of the recipe; false where a view has its own
};

/// The stages of a recipe, in order: those on frames, in the lane, and on batches. A view with options of its own has a
/// chain of its own, of the same stages.
class Chain {
 public:
  using Values = std::function<OptionValues(const std::string& name)>;

  /// Throws UsageError when a name is unknown, an option cannot be meant, sections are out of order, a stage reads what
  /// no stage before it writes (the message names the stage that would), or two stages write one field. Throws
  /// std::logic_error when two fields have one name or add one key to objects, or a field has the name of a line's key.
  /// The table outlives the chain.
  Chain(const std::vector<StagePlace>& places, const Values& values,
        const std::vector<StageEntry>& table = stage_table());

  /// The same stages for a view; `differs` says which have other options, and `values` gives all of theirs. Throws as
  /// the constructor.
  Chain for_view(const std::function<bool(const std::string& name)>& differs, const Values& values) const;

  const std::vector<ChainLink>& links() const { return links_; }
  std::vector<const ChainLink*> of(Section section) const;
  /// The first of this row of the table.
  const ChainLink* find(const std::string& stage) const;
  /// Objects that may be found in a picture.
  int objects() const;

  /// The options of stage class S; its defaults where the recipe does not name it.
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

/// Runs a stage on a frame that has not failed, and frees what nobody reads afterwards. What the stage throws passes
/// through.
void run_stage(const ChainLink& link, const FrameStage& stage, Frame& frame);

/// Runs a stage on a batch, and frees what nobody reads afterwards.
void run_stage(const ChainLink& link, LaneStage& stage, Batch& batch);
void run_stage(const ChainLink& link, const BatchStage& stage, Batch& batch);

/// Marks the frame with what a stage threw.
void fail_frame(Frame& frame, const std::string& stage, const std::exception_ptr& thrown);

}  // namespace millrace
