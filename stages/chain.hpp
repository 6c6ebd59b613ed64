#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stages/registry.hpp"
#include "stages/stage.hpp"

namespace millrace {

/// One stage of a recipe in its place.
struct ChainLink {
  const StageEntry* entry = nullptr;
  StageOptions options;
  StageInfo info;
  Access access;  ///< what the stage may touch
  Fields frees;   ///< fields that nobody reads after this stage
};

/// The stages of a recipe, in order: those on frames, in the lane, and on batches.
class Chain {
 public:
  /// Throws UsageError when a name is unknown, an option cannot be meant, sections are out of order, a stage reads what
  /// no stage before it writes (the message names the stage that would), or two stages write one field. Throws
  /// std::logic_error when two fields have one name or add one key to objects, or a field has the name of a line's key.
  /// The table outlives the chain.
  Chain(const std::vector<std::string>& names, const std::function<OptionValues(const std::string& stage)>& values,
        const std::vector<StageEntry>& table = stage_table());

  const std::vector<ChainLink>& links() const { return links_; }
  std::vector<const ChainLink*> of(Section section) const;
  const ChainLink* find(const std::string& stage) const;

  /// The options of stage class S; its defaults where the recipe does not name it.
  template <class S>
  typename S::Options options() const {
    const ChainLink* link = find(S::name);
    return link == nullptr ? typename S::Options() : std::any_cast<typename S::Options>(link->options);
  }

 private:
  std::vector<ChainLink> links_;
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
